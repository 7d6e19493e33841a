"""Blind votes on a checkpoint: the matches whose answers it wrote, seen from its side.

A match asks about the policies of two measurements: the child's last one, and another run's last one or the child's own of step 0, which is the
policy the child started from. A checkpoint took part when it is one of these policies, not because another step of its run did.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lab.data.loop.models import Match
from lab.data.loop.policy_descent import run_id
from lab.data.loop.win_rate import MatchTally, WinRate, tally_match
from lab.labelling.labels.models import Item, ItemState
from lab.lib.shares import compute_wilson_interval
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint, Run
from trainers.contract.spec import FINAL

MOST_MATCHES = 200  # newest of the team that are looked at
Key = tuple[UUID, int]  # a run and the updates its policy has had


@dataclass(frozen=True)
class MatchEvidence:
    """A match from the side of one checkpoint. ``started``: the other side is the policy its run started from."""

    match: Match
    tally: MatchTally
    child: bool

    @property
    def rate(self) -> WinRate | None:
        rate = self.tally.rate
        if rate is None or self.child:
            return rate
        return WinRate(1 - rate.value, 1 - rate.high, 1 - rate.low, rate.method)

    @property
    def shown_rate(self) -> WinRate | None:
        """None also where there are too few votes to say a rate, as on the run's page; gates count with ``floor``."""
        return self.rate if self.tally.shown_rate else None

    @property
    def votes(self) -> int:
        return self.tally.record.votes

    @property
    def floor(self) -> float:
        """Lower bound of the win rate by Wilson with prompts as votes: votes of one prompt hang together, and it needs no drawing of lots."""
        return compute_wilson_interval(self.rate.value, self.tally.prompts)[0] if self.rate else 0.0

    @property
    def started(self) -> bool:
        return self.child and self.match.against_id is None

    @property
    def other(self) -> str:
        """Who the other side is, in words."""
        if not self.child:
            return f"#{self.match.child.number} {self.match.child.name}"
        against = self.match.against
        return f"#{against.number} {against.name}" if against else "the starting policy"


def collect_match_evidence(checkpoints: Sequence[Checkpoint]) -> dict[int, list[MatchEvidence]]:
    """Checkpoint → its matches that have a queue, most votes first. Runs must be loaded."""
    evidence_by_id: dict[int, list[MatchEvidence]] = {checkpoint.pk: [] for checkpoint in checkpoints}
    if not checkpoints:
        return evidence_by_id
    by_step: defaultdict[Key, list[int]] = defaultdict(list)
    for checkpoint in checkpoints:
        by_step[checkpoint.run_id, checkpoint.step].append(checkpoint.pk)
    runs = {checkpoint.run_id for checkpoint in checkpoints}
    for match in matches_of(checkpoints[0].run.team_id):
        if not runs & {match.child_id, match.against_id, source_of(match)[0]}:
            continue
        sides = sides_of(match)
        taking = [(pk, child) for key, child in sides for pk in by_step.get(key, ())]
        counted = tally_match(match) if taking else None
        for pk, child in taking:
            assert counted is not None
            evidence_by_id[pk].append(MatchEvidence(match, counted, child))
    for own in evidence_by_id.values():
        own.sort(key=lambda evidence: -evidence.votes)
    return evidence_by_id


def matches_of(team: Team | int) -> list[Match]:
    rows = Match.objects.filter(team=team).exclude(queue=None).select_related("child", "against", "queue").order_by("-pk")
    return list(rows.defer("child__special_tokens", "against__spec", "against__special_tokens")[:MOST_MATCHES])


def voted_runs(team: Team) -> set[UUID]:
    """Runs that some match with a queue is about, on either side."""
    run_ids = {pk for match in matches_of(team) for pk in (match.child_id, match.against_id, source_of(match)[0])}
    return {pk for pk in run_ids if pk is not None}


def source_of(match: Match) -> tuple[UUID | None, str | int]:
    """The run and checkpoint the child started from, where the match is about that; (None, "") for others."""
    policy = match.child.spec.get("policy")
    if match.against_id is not None or not isinstance(policy, dict) or policy.get("kind") != "run":
        return None, ""
    return run_id(policy.get("folder")), policy.get("checkpoint", FINAL)


def sides_of(match: Match) -> list[tuple[Key, bool]]:
    """The policies that were asked about, and whether each is the child's. Read off the answers themselves."""
    item = Item.objects.filter(queue=match.queue).exclude(state=ItemState.DROPPED).only("rollouts").first()
    answers = Rollout.objects.filter(run__team=match.team_id, pk__in=item.rollouts).values_list("run_id", "step") if item else []
    sides: list[tuple[Key, bool]] = []
    for run, step in answers:
        if run == match.child_id and (match.against_id is not None or step > 0):
            sides.append(((run, step), True))
        elif run == match.against_id:
            sides.append(((run, step), False))
        else:
            sides += [(key, False) for key in [started_from(match)] if key is not None]
    return sides


def started_from(match: Match) -> Key | None:
    """The checkpoint the child started from."""
    source, checkpoint = source_of(match)
    if source is None:
        return None
    if isinstance(checkpoint, int):
        return source, checkpoint
    last = Run.objects.filter(pk=source, team=match.team_id).values_list("step", flat=True).first()
    return None if last is None else (source, last)
