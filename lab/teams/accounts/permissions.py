"""The permission table: what each role may do, and which permission each address of the lab asks for.

This file is the only place that says so. ``PermissionMiddleware`` refuses what it does not allow, the API and the websockets ask ``is_role_allowed``,
templates show what ``may`` answers, and ``docs/security.md`` prints it. An address that is not in ``ROUTES`` is refused to everybody, and
``tests/security/test_matrix.py`` fails on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.teams.accounts.models import Role

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
    permission.name: permission
    for permission in (
        Permission("lab.enter", "Open the lab; inbox and own alert settings", EVERYBODY),
        Permission("runs.read", "View runs, the queue, metrics, rollouts, tokens, prompts, comparisons, annotations, methods and workers", READERS),
        Permission(
            "runs.launch",
            "Launch, clone, ablate, stop, kill, resume, rename, tag, archive and annotate runs, order the queue, put runs in the bin; save recipes",
            LEADS,
        ),
        Permission("runs.edit", "Change settings of a running run, withdraw such an edit", LEADS),
        Permission("runs.delete", "Delete runs in the bin before their time", ADMINS),
        Permission("workers.drain", "Drain workers, where the lab has no other team (else operators do)", ADMINS),
        Permission("runs.replay", "Replay stored groups through other methods", LEADS),
        Permission("rewards.read", "View the team's reward functions, their versions and backtests", READERS),
        Permission("rewards.write", "Create, change, try, backtest and archive reward functions", LEADS),
        Permission("rewards.code", "Write reward functions in Python, which run in the sandbox only", LEADS),
        Permission("rollouts.embed", "Embed rollouts: cluster selections, find similar ones; delete clusterings and vectors", LEADS),
        Permission("runs.send", "Send runs trained elsewhere", LEADS),
        Permission("rollouts.annotate", "Tag, rate, mark and comment on rollouts", LEADS),
        Permission("rollouts.export", "Export selections of rollouts", LEADS),
        Permission("views.save", "Save views of the rollout browser", READERS),
        Permission("label.see", "View labelling queues (annotators: those assigned or open to them) and own agreement", EVERYBODY),
        Permission("label.work", "Label, and review where a queue names one a reviewer", LABELLERS),
        Permission("label.lead", "Create and change queues, assign people, adjudicate, feed queues from runs", LEADS),
        Permission("datasets.read", "View datasets, versions, lineage and recalls", READERS),
        Permission("datasets.write", "Create, import and freeze datasets", LEADS),
        Permission("datasets.export", "Download dataset versions", LEADS),
        Permission("datasets.recall", "Recall labels", LEADS),
        Permission("tasks.read", "View tasks and their versions", READERS),
        Permission("tasks.write", "Create, change and delete tasks", LEADS),
        Permission("policies.read", "View policies and checkpoints", READERS),
        Permission("policies.use", "Sample in the playground, branch at tokens, download weights, request an alias", LEADS),
        Permission("policies.promote", "Assign aliases, set gates and retention, push to a hub", ADMINS),
        Permission("usage.read", "View usage, cost, quotas and the retention of rollouts", READERS),
        Permission("usage.manage", "Set quotas and the retention of rollouts", ADMINS),
        Permission("projects.manage", "Create, rename and archive projects, move items between them", LEADS),
        Permission("reports.read", "View reports", READERS),
        Permission("reports.write", "Write, archive and export reports", LEADS),
        Permission("reports.delete", "Delete archived reports", ADMINS),
        Permission("alerts.manage", "Set the team's alert rules and webhooks", ADMINS),
        Permission("alerts.rules", "Set own alert rules", READERS),
        Permission("members.read", "View team members", READERS),
        Permission("members.manage", "Invite, change roles of, deactivate and remove members; answer join requests", ADMINS),
        Permission("team.settings", "Change the team's name, second-factor rule and join requests", ADMINS),
        Permission("team.own", "Transfer ownership, delete the team", frozenset({OWNER})),
        Permission("tokens.own", "Create and revoke own access tokens", EVERYBODY),
        Permission("tokens.service", "Create and revoke the team's service tokens, revoke any member's token", ADMINS),
        Permission("audit.read", "Read and export the audit log", ADMINS),
    )
}

# Besides the table: who a request is matters, not what their role is.
PUBLIC = "public"  # anybody, signed in or not; the view itself checks a token or a password
ACCOUNT = "account"  # anybody who is signed in, whichever team they are in, about their own account
STAFF = "staff"  # operators of the installation, at /admin/
BEARER = "bearer"  # the API: each operation names its permission itself (lab/edges/api), the token brings person, team and scopes
OUTSIDE_TEAMS = frozenset({PUBLIC, ACCOUNT, STAFF, BEARER})


@dataclass(frozen=True)
class RouteAccess:
    """What an address asks for: ``read`` for GET and HEAD, ``write`` for everything else; empty means that there is no such request."""

    read: str = ""
    write: str = ""

    def required_permission(self, method: str) -> str:
        return self.read if method in ("GET", "HEAD", "OPTIONS") else self.write


def make_read_access(*names: str, ask: str) -> dict[str, RouteAccess]:
    return {name: RouteAccess(read=ask) for name in names}


def make_write_access(*names: str, ask: str) -> dict[str, RouteAccess]:
    return {name: RouteAccess(write=ask) for name in names}


def make_read_write_access(*names: str, ask: str, write: str = "") -> dict[str, RouteAccess]:
    return {name: RouteAccess(read=ask, write=write or ask) for name in names}


ROUTES: dict[str, RouteAccess] = {
    **make_read_access("health", "health-live", "health-ready", "metrics", ask=PUBLIC),
    **make_read_write_access("setup", ask=PUBLIC),
    **make_read_write_access("account", ask=ACCOUNT),
    **make_write_access("account-session-end", "account-address-verify", ask=ACCOUNT),
    **make_write_access("csp-report", ask=PUBLIC),
    **make_read_access("home", "palette", ask="lab.enter"),  # the palette shows each kind to who may read it
    # runs
    **make_read_access("runs", "workers", "methods", "method", "run", "run-logs", "run-config", "run-metrics", "run-metrics-csv", ask="runs.read"),
    **make_read_access("run-environment", "run-requirements", "systems", "worlds", "world", ask="runs.read"),
    **make_read_access("recipe-saved", "ablations", "ablation", "ablation-csv", "sweeps", "sweep", ask="runs.read"),
    **make_read_access("launch", ask="runs.launch"),
    **make_read_write_access("launch-preflight", "launch-recipe", "ablation-new", "grid-new", "sweep-new", ask="runs.launch"),
    **make_write_access(
        "launch-demo", "launch-compose", "recipe-save", "recipe-delete", "recipe-restore", "run-stop", "run-kill", "run-resume", ask="runs.launch"
    ),
    **make_read_access("run-queue", ask="runs.read"),
    **make_write_access("run-queue-change", ask="runs.launch"),
    **make_write_access("worker-drain", ask="workers.drain"),
    **make_write_access("runs-act", "run-archive", "run-unarchive", ask="runs.launch"),
    **make_read_write_access("run-about", ask="runs.launch"),
    **make_read_access("bin", ask="runs.read"),
    **make_read_write_access("bin-put", ask="runs.launch"),
    **make_write_access("bin-restore", ask="runs.launch"),
    **make_write_access("bin-delete", ask="runs.delete"),
    **make_write_access("ablation-more", "ablation-stop", "ablation-resume", "ablation-delete", ask="runs.launch"),
    **make_write_access("sweep-stop", "sweep-continue", "sweep-again", "sweep-delete", ask="runs.launch"),
    **make_read_access("run-edits", ask="runs.read"),
    **make_read_write_access("run-edit", ask="runs.edit"),
    **make_write_access("edit-withdraw", ask="runs.edit"),
    **make_write_access("edit-fork", ask="runs.launch"),
    **make_read_access("ws-runs", "ws-run", ask="runs.read"),
    # rollouts
    **make_read_access("run-rollouts", "run-steps", "run-tokens", "rollout-tokens", "rollouts-ends", "annotations", "comments", ask="runs.read"),
    **make_write_access("tag", "untag", "rate", "mark", "comment", "comment-change", "rollouts-tag", "rollouts-untag", ask="rollouts.annotate"),
    **make_write_access("turn-verdict", "turn-preference", "turn-member-preference", ask="rollouts.annotate"),
    **make_read_access(
        "rollouts",
        "rollouts-histograms",
        "rollouts-runs",
        "rollouts-tags",
        "rollouts-newest",
        "rollouts-ends",
        "rollout-preview",
        "view-open",
        ask="runs.read",
    ),
    **make_read_write_access("runs-columns", "rollouts-columns", ask="runs.read"),
    **make_read_write_access("rollouts-export", ask="rollouts.export"),
    **make_write_access("view-save", "view-restore", "view-update", "view-rename", "view-delete", ask="views.save"),
    **make_read_access("rollout", "rollout-packed", "group", "groups", "prompts", "prompt", "rollout-labels", "group-labels", ask="runs.read"),
    **make_read_access("rollout-tree", "group-tree", ask="runs.read"),
    **make_read_access("run-atlas", "atlas-grid", "atlas-values", "atlas-tokens", "run-doctor", ask="runs.read"),
    **make_read_access("compare", "compare-series", "compare-rollouts", "compare-prompts", ask="runs.read"),
    **make_read_write_access("what-if", ask="runs.read", write="runs.replay"),
    **make_read_access("replay", "replay-tokens", ask="runs.read"),
    **make_write_access("replay-again", ask="runs.replay"),
    # the team's reward functions
    **make_read_access("rewards", "reward", "reward-diff", "backtests", "backtest", ask="rewards.read"),
    **make_read_write_access("reward-new", "reward-edit", "backtest-new", ask="rewards.write"),
    **make_write_access("reward-archive", "reward-restore", "backtest-again", ask="rewards.write"),
    **make_read_write_access("clusters", "similar", ask="runs.read", write="rollouts.embed"),
    **make_read_access("clustering", "clustering-map", ask="runs.read"),
    **make_write_access("clustering-delete", "embedding-stop", "embedding-again", "embedder-delete", ask="rollouts.embed"),
    # labelling
    **make_read_access("queues", "queue", "queue-quality", "queue-conflicts", "queue-review", "label-item", ask="label.see"),
    **make_read_access("queue-work", ask="label.work"),
    **make_write_access(
        "label-next", "label-submit", "label-draft", "label-renew", "label-release", "label-undo", "label-revise", "label-keys", ask="label.work"
    ),
    **make_read_write_access("label-mine", ask="label.work"),
    **make_write_access("queue-review-accept", "queue-review-return", "label-adjudicate", "judgement-review", ask="label.work"),
    **make_read_write_access("queue-new", "queue-settings", ask="label.lead"),
    **make_write_access("guidelines-preview", "queue-act", "queue-people", "queue-labeller", ask="label.lead"),
    **make_read_access("run-humans", ask="runs.read"),
    # the audit log
    **make_read_access("audit", "audit-entry", "audit-export", ask="audit.read"),
    # datasets and the loop
    **make_read_access("datasets", "dataset", "version", "version-since", "version-diff", "lineage", "recalls", ask="datasets.read"),
    **make_read_write_access("dataset-preview", ask="datasets.read"),
    **make_read_write_access("dataset-new", "dataset-import", "version-tool", ask="datasets.write"),
    **make_read_access("version-tool-preview", ask="datasets.write"),
    **make_write_access("dataset-freeze", "version-retry", "recall-rebuild", ask="datasets.write"),
    **make_read_access("version-export", ask="datasets.export"),
    **make_read_write_access("recall", ask="datasets.recall"),
    **make_write_access("recall-undo", ask="datasets.recall"),
    **make_read_access("tasks", "task", "task-diff", "task-fetch", ask="tasks.read"),
    **make_read_write_access("task-new", "task-edit", ask="tasks.write"),
    **make_write_access("task-preview", "task-delete", "task-restore", ask="tasks.write"),
    **make_read_write_access("version-train", ask="runs.launch"),
    **make_read_access("run-wins", ask="runs.read"),
    **make_read_write_access("run-match", ask="label.lead"),
    **make_read_write_access("run-feeds", ask="runs.read", write="label.lead"),
    **make_write_access("feed-stop", ask="label.lead"),
    # alerts
    **make_read_access("ws-inbox", "inbox", "inbox-open", "alerts", ask="lab.enter"),
    **make_write_access("inbox-read", "inbox-read-all", "inbox-undo", "alert-switch", ask="lab.enter"),
    **make_read_write_access("alert-new", "alert", ask="alerts.rules"),
    **make_read_access("alert-preview", ask="alerts.rules"),
    **make_write_access("alert-delete", ask="alerts.rules"),
    **make_read_access("team-alerts", "deliveries", ask="alerts.manage"),
    **make_read_write_access("team-alert-new", "team-alert", "webhook-new", "webhook", ask="alerts.manage"),
    **make_write_access(
        "team-alert-switch", "team-alert-delete", "webhook-test", "webhook-secret", "webhook-delete", "delivery-again", ask="alerts.manage"
    ),
    # projects
    **make_read_access("projects", "project", ask="runs.read"),
    **make_write_access("project-new", "project-change", "project-archive", "project-restore", "project-move", ask="projects.manage"),
    # reports
    **make_read_access("reports", "report", "report-versions", ask="reports.read"),
    **make_read_access("report-export", "report-choices", ask="reports.write"),
    **make_read_write_access("report-new", "report-edit", "report-add", ask="reports.write"),
    **make_write_access("report-preview", "report-restore", "report-archive", "report-unarchive", ask="reports.write"),
    **make_write_access("report-delete", ask="reports.delete"),
    # usage
    **make_read_access("usage", "usage-left", "usage-csv", ask="usage.read"),
    **make_read_write_access("usage-limits", ask="usage.manage"),
    **make_read_write_access("rollout-retention", ask="usage.read", write="usage.manage"),
    # policies
    **make_read_access("policies", "policy", "policy-files", "aliases", "proposal", "policy-hub", "push", ask="policies.read"),
    **make_read_access("policy-download", ask="policies.use"),
    **make_write_access("policy-propose", "proposal-withdraw", ask="policies.use"),
    **make_write_access("policy-delete", "policy-keep", "policy-push", "push-cancel", "policy-hub-token", ask="policies.promote"),
    **make_write_access("alias-gate", "alias-back", "alias-clear", "proposal-approve", "proposal-refuse", ask="policies.promote"),
    **make_read_write_access("retention", ask="policies.read", write="policies.promote"),
    # access tokens and the API
    **make_read_access("tokens", "api-docs", ask="tokens.own"),
    **make_read_write_access("token-new", ask="tokens.own"),
    **make_write_access("token-revoke", ask="tokens.own"),
    **make_read_access("client", "client-wheel", ask=PUBLIC),  # published code; who installs it has no session
    **make_read_access("api-openapi", ask=PUBLIC),  # what the API can do is no secret; what it did is
    # people
    **make_read_access("team", ask="members.read"),
    **make_read_access("team-role", ask="lab.enter"),
    **make_read_write_access("team-leave", ask="lab.enter"),
    **make_read_access("member", ask="members.manage"),
    **make_write_access("invite", "invitation-resend", "invitation-withdraw", "request-answer", ask="members.manage"),
    **make_write_access("member-role", "member-deactivate", "member-reactivate", "member-remove", ask="members.manage"),
    **make_read_write_access("team-settings", ask="team.settings"),
    **make_read_write_access("team-transfer", "team-delete", ask="team.own"),
    **make_read_access("teams", ask=ACCOUNT),
    **make_read_write_access("team-new", "team-join", ask=ACCOUNT),
    **make_read_write_access("invited", ask=PUBLIC),
    # playground
    **make_read_write_access("playground", ask="policies.read", write="policies.use"),
    **make_read_access("sampling", "sampling-state", "ws-sampling", ask="policies.read"),
    **make_write_access("sampling-stop", ask="policies.use"),
    **make_write_access("sampling-label", ask="label.lead"),
    # branches
    **make_read_access("rollout-branches", "group-branches", ask="runs.read"),
    **make_read_write_access("branch-new", ask="policies.use"),
    **make_write_access("alternatives-ask", "branch-stop", "branch-delete", ask="policies.use"),
    **make_read_access("branch", "branch-state", "alternatives-state", "ws-branch", ask="policies.read"),
    **make_write_access("branch-queue", ask="label.lead"),
}

# Addresses of packages: all that begin so.
PREFIXES: dict[str, RouteAccess] = {
    **make_read_write_access(
        "account_", "socialaccount_", "openid_connect_", "saml_", ask=PUBLIC
    ),  # allauth asks for a login itself where one is needed
    **make_read_write_access("mfa_authenticate", "mfa_login_webauthn", ask=PUBLIC),  # the second half of signing in, and signing in with a key alone
    **make_read_write_access("mfa_", "usersessions_", ask=ACCOUNT),
    **make_read_write_access("admin:", ask=STAFF),
    **make_read_write_access("api-", ask=BEARER),
}


def find_route_access(route: str) -> RouteAccess | None:
    """What the address of that name (with its namespace) asks for; None when nobody has said."""
    access = ROUTES.get(route)
    if access is not None:
        return access
    return next((access for prefix, access in PREFIXES.items() if route.startswith(prefix)), None)


def is_role_allowed(role: str, permission: str) -> bool:
    """Whether a member with ``role`` has the permission. Raises KeyError for a permission that is not in the table."""
    return role in TABLE[permission].roles


def explain_role_refusal(permission: str, role: str, team: str) -> str:
    """Why not, and who can help; one sentence or two for the person."""
    roles = [role.value for role in Role if role in TABLE[permission].roles]
    who = " and ".join([", ".join(f"{role}s" for role in roles[:-1]), f"{roles[-1]}s"]) if len(roles) > 1 else f"the {roles[0]}"
    return f"This is for {who} of team {team}: your role is {role}."
