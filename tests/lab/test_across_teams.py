"""Who may ask across teams. Workers, chores, ingest and operators serve the whole installation; of what answers people, only what is named here."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.test_imports import ROOT, files

# Never run for a request, or for an operator's.
BEHIND = ("supervision/supervisor/", "edges/operations/", "watching/alerts/watching/", "watching/alerts/deliveries.py", "training/runs/demo.py")
CHORES = ("chores.py", "tasks.py")  # what Celery calls
FOUND_BEFORE = "by ids that the caller found within the team"
SECRET = "by a secret, before a team is known"
OF_PERSON = "one person's, whatever team"
ALLOWED = {  # module: (how often, why)
    "teams/accounts/address_proof.py": (1, OF_PERSON),
    "teams/accounts/single_sign_on.py": (1, "whether any team invited the address"),
    "watching/alerts/mails.py": (1, "the mails of one person are limited over all teams"),
    "rollouts/annotations/annotation_panel.py": (1, FOUND_BEFORE),
    "rollouts/annotations/verbs.py": (1, "a person's comment is known by the key of its page"),
    "edges/api/idempotency.py": (1, "forgets old keys of everybody"),
    "edges/api/operations/catalog.py": (1, "workers serve all teams; what another team's run is called is left out"),
    "edges/api/tokens.py": (1, SECRET),
    "rollouts/atlas/tokens.py": (1, FOUND_BEFORE),
    "teams/audit/chain.py": (4, "one chain over the entries of the whole installation"),
    "rollouts/browse/conditions.py": (1, "joined with rollouts that are narrowed"),
    "rollouts/browse/indexing.py": (2, "a worker's chore"),
    "rollouts/browse/regex.py": (1, FOUND_BEFORE),
    "data/datasets/freezing.py": (1, "a worker's task"),
    "labelling/labels/item_order.py": (1, "a worker's chore"),
    "labelling/labels/samples.py": (2, FOUND_BEFORE),
    "labelling/labels/settlement.py": (2, FOUND_BEFORE),
    "data/loop/matches.py": (1, "a worker's chore"),
    "data/loop/recall_work.py": (4, "a worker's chore"),
    "teams/people/invitations.py": (2, "an invitation by its secret or by the proved address of whom it invites, before a team is known"),
    "teams/people/join_requests.py": (1, OF_PERSON),
    "models/branches/answering.py": (2, "a worker's task"),
    "models/branches/consumers.py": (1, "may_see has looked"),
    "models/playground/consumers.py": (1, "may_see has looked"),
    "data/tasks/fetching.py": (1, "a worker's task"),
    "models/playground/sampling.py": (1, "a worker's task"),
    "training/ablations/budgets.py": (1, FOUND_BEFORE),
    "models/embeddings/jobs.py": (1, "a worker's task"),
    "models/embeddings/vectors.py": (1, "a worker's task"),
    "models/policies/pushes.py": (4, "a worker's task"),
    "models/policies/removal.py": (5, "a worker's chore"),
    "models/policies/retention.py": (2, "a worker's chore"),
    "rollouts/replay/answers.py": (2, "a worker's task"),
    "rollouts/backtests/scoring.py": (1, "a worker's task"),
    "training/runs/launch.py": (1, "the number of the run a spec starts from; the composer has looked"),
    "training/runs/live.py": (1, "by the id of a run that the socket has looked up"),
    "training/runs/metrics.py": (6, FOUND_BEFORE),
    "training/runs/occupations.py": (1, "a worker's own lease"),
    "training/runs/process_counts.py": (1, "workers claim the runs of all teams"),
    "training/runs/progress.py": (1, "the command line"),
    "training/runs/queue_order.py": (2, "workers claim the runs of all teams, each in its turn"),
    "training/runs/run_looks.py": (1, "the socket's group has looked"),
    "watching/queue/forecast.py": (1, "each team waits for the runs of others; only its own are shown"),
    "training/runs/views/workers.py": (1, "workers serve all teams; what another team's run is called is left out"),
    "watching/usage/ledger.py": (2, "a worker's leases"),
    "watching/usage/quotas.py": (3, "workers claim the runs of all teams, each within its limits"),
    "watching/usage/storage_use.py": (3, "a worker's chore"),
}
GETTERS = {"get_object_or_404", "get_list_or_404", "aget_object_or_404", "aget_list_or_404"}
PRIVATE = {"_default_manager", "_base_manager"}
PURGE = {"teams/people/team_deletion.py"}  # deletes a whole team, model by model


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in files("lab"):
        name = path.relative_to(ROOT / "lab").as_posix()
        if "/migrations/" not in name and name != "teams/accounts/scope.py":
            yield name, ast.parse(path.read_bytes())


def asks_across(tree: ast.Module) -> int:
    """How often it names the manager; in text, too, as for ``getattr``. Its declaration in a model is no question."""
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "across_teams"]
    written = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == "across_teams"]
    return len(used) + len(written)


def around(tree: ast.Module) -> Iterator[str]:
    """Ways to a model's rows that ask for no team: Django's own managers, and Django's getters, which take the default one of a model class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE:
            yield f"{node.lineno}: {node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in GETTERS and node.args:
            first = node.args[0]
            if isinstance(first, ast.Name) and first.id[:1].isupper():
                yield f"{node.lineno}: {node.func.id}({first.id})"


def test_only_what_is_named_here_asks_across_teams() -> None:
    seen = [(name, asks_across(tree)) for name, tree in modules() if not name.startswith(BEHIND) and not name.endswith(CHORES)]
    assert {name: count for name, count in seen if count} == {name: count for name, (count, _) in ALLOWED.items()}, (
        "What answers people asks inside one team: start from an object that was looked up (run.checkpoints), or narrow by .of(request.team). "
        "If all teams are meant, say here why."
    )


def test_nothing_goes_around_the_managers() -> None:
    assert {name: found for name, tree in modules() if name not in PURGE and (found := list(around(tree)))} == {}


@pytest.mark.parametrize(
    "text", ["Run._default_manager.all()", "Run._base_manager.get(pk=1)", "get_object_or_404(Run, pk=1)", "get_list_or_404(Run)"]
)
def test_a_way_around_is_seen(text: str) -> None:
    assert list(around(ast.parse(text)))


def test_the_folders_are_there() -> None:
    assert [name for name in (*ALLOWED, *PURGE) if not (Path(ROOT) / "lab" / name).is_file()] == []
