"""The permission table: what each role may do, and which permission each address of the lab asks for.

This file is the only place that says so. ``PermissionMiddleware`` refuses what it does not allow, the API and the websockets ask ``allowed``,
templates show what ``may`` answers, and ``docs/security.md`` prints it. An address that is not in ``ROUTES`` is refused to everybody, and
``tests/security/test_matrix.py`` fails on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.accounts.models import Role

VIEWER, ANNOTATOR, RESEARCHER, ADMIN, OWNER = Role.VIEWER, Role.ANNOTATOR, Role.RESEARCHER, Role.ADMIN, Role.OWNER
EVERYBODY = frozenset(Role)
READERS = frozenset({VIEWER, RESEARCHER, ADMIN, OWNER})  # all but annotators, who see only the queues they work in
LABELLERS = frozenset({ANNOTATOR, RESEARCHER, ADMIN, OWNER})
LEADS = frozenset({RESEARCHER, ADMIN, OWNER})
ADMINS = frozenset({ADMIN, OWNER})


@dataclass(frozen=True)
class Permission:
    name: str
    words: str  # what it lets a person do; a line of docs/security.md and of the team's page
    roles: frozenset[Role]


TABLE: dict[str, Permission] = {
    one.name: one
    for one in (
        Permission("lab.enter", "Open the lab; inbox and own alert settings", EVERYBODY),
        Permission("runs.read", "See runs, metrics, rollouts, tokens, prompts, comparisons, annotations, methods and workers", READERS),
        Permission("runs.launch", "Launch, clone, ablate, stop, kill and resume runs; save recipes", LEADS),
        Permission("runs.replay", "Replay stored groups through other methods", LEADS),
        Permission("runs.send", "Send runs trained elsewhere", LEADS),
        Permission("rollouts.annotate", "Tag, rate, mark and comment on rollouts", LEADS),
        Permission("rollouts.export", "Export selections of rollouts", LEADS),
        Permission("views.save", "Save views of the rollout browser", READERS),
        Permission("label.see", "See labelling queues (annotators: those assigned or open to them) and one's own agreement", EVERYBODY),
        Permission("label.work", "Label, and review where a queue names one a reviewer", LABELLERS),
        Permission("label.lead", "Make and change queues, assign people, adjudicate, feed queues from runs", LEADS),
        Permission("datasets.read", "See datasets, versions, lineage and recalls", READERS),
        Permission("datasets.write", "Make, import and freeze datasets", LEADS),
        Permission("datasets.export", "Download dataset versions", LEADS),
        Permission("datasets.recall", "Recall labels", LEADS),
        Permission("policies.read", "See policies and checkpoints", READERS),
        Permission("policies.use", "Sample in the playground, download weights, propose an alias", LEADS),
        Permission("policies.promote", "Give aliases, set gates and retention, push to a hub", ADMINS),
        Permission("usage.read", "See usage, cost and quotas", READERS),
        Permission("usage.manage", "Set quotas", ADMINS),
        Permission("projects.manage", "Make, rename and archive projects, move things between them", LEADS),
        Permission("alerts.manage", "Set the team's alert rules and webhooks", ADMINS),
        Permission("alerts.rules", "Set alert rules of one's own", READERS),
        Permission("members.read", "See who is in the team", READERS),
        Permission("members.manage", "Invite, change roles of, deactivate and remove members; answer join requests", ADMINS),
        Permission("team.settings", "Change the team's name, second-factor rule and join requests", ADMINS),
        Permission("team.own", "Transfer ownership, delete the team", frozenset({OWNER})),
        Permission("tokens.own", "Make and revoke access tokens of one's own", EVERYBODY),
        Permission("tokens.service", "Make and revoke the team's service tokens, revoke any member's token", ADMINS),
        Permission("audit.read", "Read and export the audit log", ADMINS),
    )
}

# Besides the table: who a request is matters, not what their role is.
PUBLIC = "public"  # anybody, signed in or not; the view itself checks a token or a password
ACCOUNT = "account"  # anybody who is signed in, whichever team they are in, about their own account
STAFF = "staff"  # operators of the installation, at /admin/
BEARER = "bearer"  # the API: each operation names its permission itself (lab/api), the token brings person, team and scopes
OUTSIDE_TEAMS = frozenset({PUBLIC, ACCOUNT, STAFF, BEARER})


@dataclass(frozen=True)
class Access:
    """What an address asks for: ``read`` for GET and HEAD, ``write`` for everything else; empty means that there is no such request."""

    read: str = ""
    write: str = ""

    def asked(self, method: str) -> str:
        return self.read if method in ("GET", "HEAD", "OPTIONS") else self.write


def see(*names: str, ask: str) -> dict[str, Access]:
    return {name: Access(read=ask) for name in names}


def do(*names: str, ask: str) -> dict[str, Access]:
    return {name: Access(write=ask) for name in names}


def both(*names: str, ask: str, write: str = "") -> dict[str, Access]:
    return {name: Access(read=ask, write=write or ask) for name in names}


ROUTES: dict[str, Access] = {
    **see("health", ask=PUBLIC),
    **both("setup", ask=PUBLIC),
    **both("account", ask=ACCOUNT),
    **do("account-session-end", ask=ACCOUNT),
    **do("csp-report", ask=PUBLIC),
    **see("home", ask="lab.enter"),
    # runs
    **see("runs", "workers", "methods", "method", "run", "run-logs", "run-config", "run-metrics", "run-metrics-csv", ask="runs.read"),
    **see("recipe-saved", "ablations", "ablation", ask="runs.read"),
    **see("launch", ask="runs.launch"),
    **both("launch-preflight", "launch-recipe", "ablation-new", ask="runs.launch"),
    **do("launch-demo", "launch-compose", "recipe-save", "recipe-delete", "recipe-restore", "run-stop", "run-kill", "run-resume", ask="runs.launch"),
    **do("ablation-more", "ablation-stop", "ablation-delete", ask="runs.launch"),
    **see("ws-runs", "ws-run", ask="runs.read"),
    # rollouts
    **see("run-rollouts", "run-steps", "run-tokens", "rollout-tokens", "annotations", "comments", ask="runs.read"),
    **do("tag", "untag", "rate", "mark", "comment", "comment-change", "rollouts-tag", "rollouts-untag", ask="rollouts.annotate"),
    **see("rollouts", "rollouts-histograms", "rollouts-runs", "rollouts-newest", "rollout-preview", "view-open", ask="runs.read"),
    **both("rollouts-columns", ask="runs.read"),
    **both("rollouts-export", ask="rollouts.export"),
    **do("view-save", "view-restore", "view-update", "view-rename", "view-delete", ask="views.save"),
    **see("rollout", "rollout-packed", "group", "groups", "prompts", "prompt", "rollout-labels", "group-labels", ask="runs.read"),
    **see("run-atlas", "atlas-grid", "atlas-values", "atlas-tokens", "run-doctor", ask="runs.read"),
    **see("compare", "compare-series", "compare-rollouts", "compare-prompts", ask="runs.read"),
    **both("what-if", ask="runs.read", write="runs.replay"),
    **see("replay", "replay-tokens", ask="runs.read"),
    **do("replay-again", ask="runs.replay"),
    # labelling
    **see("queues", "queue", "queue-quality", "queue-conflicts", "queue-review", "label-item", ask="label.see"),
    **see("queue-work", ask="label.work"),
    **do("label-next", "label-submit", "label-draft", "label-renew", "label-release", "label-undo", "label-revise", "label-keys", ask="label.work"),
    **both("label-mine", ask="label.work"),
    **do("queue-review-accept", "label-adjudicate", "judgement-review", ask="label.work"),
    **both("queue-new", "queue-settings", ask="label.lead"),
    **do("guidelines-preview", "queue-act", "queue-people", "queue-labeller", ask="label.lead"),
    **see("run-humans", ask="runs.read"),
    # the audit log
    **see("audit", "audit-entry", "audit-export", ask="audit.read"),
    # datasets and the loop
    **see("datasets", "dataset", "version", "version-since", "version-diff", "lineage", "recalls", ask="datasets.read"),
    **both("dataset-preview", ask="datasets.read"),
    **both("dataset-new", "dataset-import", ask="datasets.write"),
    **do("dataset-freeze", "version-retry", "recall-rebuild", ask="datasets.write"),
    **see("version-export", ask="datasets.export"),
    **both("recall", ask="datasets.recall"),
    **do("recall-undo", ask="datasets.recall"),
    **both("version-train", ask="runs.launch"),
    **see("run-wins", ask="runs.read"),
    **both("run-match", ask="label.lead"),
    **both("run-feeds", ask="runs.read", write="label.lead"),
    **do("feed-stop", ask="label.lead"),
    # alerts
    **see("ws-inbox", "inbox", "inbox-open", "alerts", ask="lab.enter"),
    **do("inbox-read", "inbox-read-all", "inbox-undo", "alert-switch", ask="lab.enter"),
    **both("alert-new", "alert", ask="alerts.rules"),
    **see("alert-preview", ask="alerts.rules"),
    **do("alert-delete", ask="alerts.rules"),
    **see("team-alerts", "deliveries", ask="alerts.manage"),
    **both("team-alert-new", "team-alert", "webhook-new", "webhook", ask="alerts.manage"),
    **do("team-alert-switch", "team-alert-delete", "webhook-test", "webhook-secret", "webhook-delete", "delivery-again", ask="alerts.manage"),
    # projects
    **see("projects", "project", ask="runs.read"),
    **do("project-new", "project-change", "project-archive", "project-restore", "project-move", ask="projects.manage"),
    # usage
    **see("usage", "usage-left", "usage-csv", ask="usage.read"),
    **both("usage-limits", ask="usage.manage"),
    # policies
    **see("policies", "policy", "policy-files", "aliases", "proposal", "policy-hub", "push", ask="policies.read"),
    **see("policy-download", ask="policies.use"),
    **do("policy-propose", "proposal-withdraw", ask="policies.use"),
    **do("policy-delete", "policy-keep", "policy-push", "push-cancel", "policy-hub-token", ask="policies.promote"),
    **do("alias-gate", "alias-back", "alias-clear", "proposal-approve", "proposal-refuse", ask="policies.promote"),
    **both("retention", ask="policies.read", write="policies.promote"),
    # access tokens and the API
    **see("tokens", "api-docs", ask="tokens.own"),
    **both("token-new", ask="tokens.own"),
    **do("token-revoke", ask="tokens.own"),
    **see("api-openapi", ask=PUBLIC),  # what the API can do is no secret; what it did is
    # people
    **see("team", ask="members.read"),
    **see("team-role", ask="lab.enter"),
    **both("team-leave", ask="lab.enter"),
    **see("member", ask="members.manage"),
    **do("invite", "invitation-resend", "invitation-withdraw", "request-answer", ask="members.manage"),
    **do("member-role", "member-deactivate", "member-reactivate", "member-remove", ask="members.manage"),
    **both("team-settings", ask="team.settings"),
    **both("team-transfer", "team-delete", ask="team.own"),
    **see("teams", ask=ACCOUNT),
    **both("team-new", "team-join", ask=ACCOUNT),
    **both("invited", ask=PUBLIC),
    # playground
    **both("playground", ask="policies.read", write="policies.use"),
    **see("sampling", "sampling-state", "ws-sampling", ask="policies.read"),
    **do("sampling-stop", ask="policies.use"),
    **do("sampling-label", ask="label.lead"),
}

# Addresses of packages: all that begin so.
PREFIXES: dict[str, Access] = {
    **both("account_", "socialaccount_", "openid_connect_", ask=PUBLIC),  # allauth asks for a login itself where one is needed
    **both("mfa_authenticate", "mfa_login_webauthn", ask=PUBLIC),  # the second half of signing in, and signing in with a key alone
    **both("mfa_", "usersessions_", ask=ACCOUNT),
    **both("admin:", ask=STAFF),
    **both("api-", ask=BEARER),
}


def access(route: str) -> Access | None:
    """What the address of that name (with its namespace) asks for; None when nobody has said."""
    found = ROUTES.get(route)
    if found is not None:
        return found
    return next((one for prefix, one in PREFIXES.items() if route.startswith(prefix)), None)


def allowed(role: str, permission: str) -> bool:
    """Whether a member with ``role`` has the permission. Raises KeyError for a permission that is not in the table."""
    return role in TABLE[permission].roles


def refusal(permission: str, role: str, team: str) -> str:
    """Why not, and who can help; one sentence or two for the person."""
    roles = [one.value for one in Role if one in TABLE[permission].roles]
    who = " and ".join([", ".join(f"{one}s" for one in roles[:-1]), f"{roles[-1]}s"]) if len(roles) > 1 else f"the {roles[0]}"
    return f"This is for {who} of team {team}: your role is {role}."
