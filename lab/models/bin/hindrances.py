"""Why a run cannot be deleted: work of others that depends on it, named, so that a person can take it away first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.db import connection
from django.db.models import Q
from django.db.models.fields.json import KT

from lab.data.loop.models import Match
from lab.data.loop.policy_descent import run_id
from lab.labelling.labels.models import Item, QueueStatus
from lab.models.bin.label_items import find_run_items
from lab.models.policies.models import UNDER_WAY, Alias, Proposal, ProposalState, Push
from lab.teams.accounts.models import Team
from lab.training.ablations.models import AblationRun
from lab.training.runs.models import Run

Reasons = defaultdict[UUID, list[str]]
NAMED = 3  # of the runs that started from one; the rest is counted

VERSIONS = """
SELECT DISTINCT r.run_id, own.name, v.number
FROM datasets_dataset AS own JOIN datasets_version AS v ON v.dataset_id = own.id JOIN datasets_row AS d ON d.version_id = v.id
CROSS JOIN LATERAL unnest(d.rollouts) AS answer(id) JOIN trajectories_rollout AS r ON r.id = answer.id
WHERE own.team_id = %s AND r.run_id = ANY(%s) ORDER BY own.name, v.number
"""


def find_bin_objections(team: Team, runs: Sequence[Run]) -> dict[UUID, str]:
    """Run → why it cannot be put in the bin; those without a reason are left out. Runs that go together do not hold each other up."""
    reasons = explain_dependents(team, runs)
    for run in runs:
        if run.is_open:
            reasons[run.pk].insert(0, f"{run.status}, stop it first")
    children = find_children(team, runs, in_bin_too=False)
    going: set[int] = set()
    for run in sorted(runs, key=lambda run: -run.number):  # a child is newer than what it started from
        if staying := [number for number in children[run.pk] if number not in going]:
            reasons[run.pk].append(name_children(staying))
        if not reasons[run.pk]:
            going.add(run.number)
    return {pk: "; ".join(words) for pk, words in reasons.items() if words}


def find_purge_objections(team: Team, runs: Sequence[Run]) -> dict[UUID, str]:
    """Run of the bin → why it cannot be deleted for good: what came to depend on it meanwhile, or may be restored."""
    reasons = explain_dependents(team, runs)
    for pk, children in find_children(team, runs, in_bin_too=True).items():
        reasons[pk].append(name_children(children))
    return {pk: "; ".join(words) for pk, words in reasons.items() if words}


def find_restore_objection(team: Team, run: Run) -> str:
    """A run whose start is in the bin would hang on what can be deleted."""
    starts = Run.objects.in_bin(team).filter(pk__in=[pk for pk in (run.parent_id, find_source(run.spec)) if pk])
    numbers = ", ".join(f"#{number}" for number in sorted(starts.values_list("number", flat=True)))
    return f"it started from {numbers}, which {'are' if ',' in numbers else 'is'} in the bin: restore that first" if numbers else ""


def find_source(spec: dict[str, object]) -> UUID | None:
    """The run whose policy a spec starts from."""
    policy = spec.get("policy")
    return run_id(policy.get("folder")) if isinstance(policy, dict) and policy.get("kind") == "run" else None


def find_children(team: Team, runs: Sequence[Run], *, in_bin_too: bool) -> defaultdict[UUID, list[int]]:
    """Run → numbers of the runs that started from it or wait for it."""
    children: defaultdict[UUID, list[int]] = defaultdict(list)
    wanted = {run.pk for run in runs}
    every = Run.objects.filter(team=team) if in_bin_too else Run.objects.of(team)
    started = every.annotate(folder_of_policy=KT("spec__policy__folder")).order_by("number")
    rows = started.values_list("pk", "number", "parent_id", "folder_of_policy")
    for pk, number, parent, folder in rows:
        for source in wanted & {parent, run_id(folder)} - {pk}:
            children[source].append(number)
    return children


def name_children(numbers: list[int]) -> str:
    more = f" and {len(numbers) - NAMED} more" if len(numbers) > NAMED else ""
    return f"{', '.join(f'#{number}' for number in numbers[:NAMED])}{more} started from it or {'waits' if len(numbers) == 1 else 'wait'} for it"


def explain_dependents(team: Team, runs: Sequence[Run]) -> Reasons:
    reasons: Reasons = defaultdict(list)
    for run, name in Alias.objects.filter(checkpoint__run__in=runs).values_list("checkpoint__run", "name"):
        reasons[run].append(f"one of its policies has the alias {name}")
    for run, name in Proposal.objects.filter(checkpoint__run__in=runs, state=ProposalState.OPEN).values_list("checkpoint__run", "alias__name"):
        reasons[run].append(f"the alias {name} is requested for one of its policies")
    for run in Push.objects.filter(checkpoint__run__in=runs, state__in=UNDER_WAY).values_list("checkpoint__run", flat=True).distinct():
        reasons[run].append("one of its policies is being pushed to a hub")
    for run, name, factors in AblationRun.objects.filter(run__in=runs).values_list("run", "ablation__name", "ablation__factors"):
        reasons[run].append(f"the {'grid' if factors else 'ablation'} “{name}” counts it")
    explain_matches(runs, reasons)
    explain_open_queues(team, runs, reasons)
    with connection.cursor() as cursor:
        cursor.execute(VERSIONS, [team.pk, [run.pk for run in runs]])
        for run, name, number in cursor.fetchall():
            reasons[run].append(f"its rollouts are in the dataset version “{name}” v{number}")
    return reasons


def explain_matches(runs: Sequence[Run], reasons: Reasons) -> None:
    """Votes of people compare the two runs; without either they say nothing."""
    matches = Match.objects.filter(Q(child__in=runs) | Q(against__in=runs)).exclude(queue=None).values_list("child", "against", "queue__name")
    wanted = {run.pk for run in runs}
    for child, against, name in matches:
        for run in {child, against} & wanted:
            reasons[run].append(f"its answers are used in the match “{name}”")


def explain_open_queues(team: Team, runs: Sequence[Run], reasons: Reasons) -> None:
    items = find_run_items(team, runs)
    open_items = Item.objects.filter(queue__team=team, pk__in=set().union(*items.values())).exclude(queue__status=QueueStatus.CLOSED)
    queues = dict(open_items.values_list("pk", "queue__name"))
    for run, ids in items.items():
        for name in sorted({queues[item] for item in ids if item in queues}):
            reasons[run].append(f"the labelling queue “{name}” asks about its rollouts: close it first")
