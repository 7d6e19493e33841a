"""Labels where rollouts are read: what people said of one rollout, and of the members of a group.

Leads see every label and whose it is, viewers every label. Annotators see their own, and those of others once an item is done, without names:
somebody who can still judge it should not know what was said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import Item, ItemState, Judgement, Kind, Verdict
from lab.lib.numbers import MAX_INTEGER
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.steps import PHASE_LABELS
from lab.teams.accounts.models import Team
from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import has_team_permission
from lab.training.runs.models import Run

ITEMS = 500  # newest items of a prompt that are looked at
# Written out: every list of rollouts asks it, mostly to hear of none, and composing the query took longer than answering it.
ITEMS_ABOUT = """
SELECT item.id FROM labels_item item JOIN labels_queue queue ON queue.id = item.queue_id AND queue.team_id = %(team)s
WHERE item.prompt_id = ANY(%(prompts)s::bigint[]) AND item.rollouts && %(rollouts)s::bigint[] ORDER BY item.id DESC LIMIT %(most)s
"""
LISTED = 10
COUNTS = {"chosen": "▲", "rejected": "▼", "tied": "=", "good": "✓", "neutral": "–", "bad": "✗"}  # with the sign that stands before each


@dataclass
class PreferenceTally:
    """How often a rollout was preferred, counted in pairs: a ranking of five says four things about each member."""

    chosen: int = 0
    rejected: int = 0
    tied: int = 0
    good: int = 0
    neutral: int = 0
    bad: int = 0  # single answers, and pairs of which both are bad

    def add(self, other: PreferenceTally) -> None:
        for name, count in other.__dict__.items():
            setattr(self, name, getattr(self, name) + count)

    @property
    def parts(self) -> list[tuple[str, str, int]]:
        """(name, the sign before it, count) of what was said at all."""
        return [(name, sign, getattr(self, name)) for name, sign in COUNTS.items() if getattr(self, name)]


@dataclass
class LabelRow:
    """One label as this person may see it. ``who`` is empty where the name is not shown."""

    judgement: Judgement
    who: str
    words: str
    other: int | None  # the rollout it was compared with
    extras: list[str]
    other_label: str = ""


def tally_answer(rollouts: Sequence[int], verdict: str, tiers: Any, rollout: int) -> PreferenceTally:
    """What one answer about ``rollouts`` says of one of them."""
    index = list(rollouts).index(rollout)
    if verdict in (Verdict.GOOD, Verdict.NEUTRAL, Verdict.BAD):
        return PreferenceTally(**{verdict: 1})
    if len(rollouts) == 2 and verdict in (Verdict.A, Verdict.B):
        return PreferenceTally(chosen=1) if (verdict == Verdict.A) == (index == 0) else PreferenceTally(rejected=1)
    if len(rollouts) == 2 and verdict == Verdict.TIE:
        return PreferenceTally(tied=1)
    if verdict == Verdict.RANKED:
        at = tier_of(tiers, index)
        return PreferenceTally(chosen=sum(map(len, tiers[at + 1 :])), rejected=sum(map(len, tiers[:at])), tied=len(tiers[at]) - 1)
    return PreferenceTally()


def tier_of(tiers: Sequence[Sequence[int]], index: int) -> int:
    return next(at for at, tier in enumerate(tiers) if index in tier)


def describe_verdict(item: Item, verdict: str, tiers: Any, rollout: int) -> tuple[str, int | None]:
    """A verdict in words, seen from one rollout; and the rollout that belongs behind them."""
    index = item.rollouts.index(rollout)
    other = item.rollouts[1 - index] if item.queue.kind == Kind.PAIR else None
    if item.queue.kind == Kind.CLEARER:
        clearer = {Verdict.FIRST: 0, Verdict.SECOND: 1}.get(Verdict(verdict))
        if clearer is None:
            return "no clearer than another pair", None
        return ("in the clearer pair" if index // 2 == clearer else "in the less clear pair"), None
    if verdict == Verdict.RANKED:
        at = tier_of(tiers, index)
        ties = f", with {len(tiers[at]) - 1} as good" if len(tiers[at]) > 1 else ""
        return f"place {at + 1} of {len(tiers)} in a ranking of {len(item.rollouts)}{ties}", None
    if other is None or verdict == Verdict.BAD:
        return ("both bad, with" if other else verdict), other
    counted = tally_answer(item.rollouts, verdict, tiers, rollout)
    return ("chosen over" if counted.chosen else "rejected for" if counted.rejected else "as good as"), other


def list_label_extras(judgement: Judgement) -> list[str]:
    extras = [f"strength {judgement.strength}"] if judgement.strength else []
    extras += [
        f"{len(marks)} {name}{'s' * (len(marks) != 1)} marked" for name, marks in (("step", judgement.steps), ("span", judgement.spans)) if marks
    ]
    return [*extras, *(["corrected"] if judgement.correction else []), *(["with a rationale"] if judgement.rationale else [])]


def judgements_about(team: Team, prompts: Iterable[int], rollouts: Sequence[int]) -> list[Judgement]:
    """Labels that count, newest first, of items in which one of the rollouts stands; skips say nothing."""
    with connection.cursor() as cursor:
        cursor.execute(ITEMS_ABOUT, {"team": team.pk, "prompts": list(prompts), "rollouts": list(rollouts), "most": ITEMS})
        newest = [pk for (pk,) in cursor.fetchall()]
    if not newest:
        return []
    judgements = Judgement.objects.of(team).counting().filter(item_id__in=newest).exclude(verdict=Verdict.SKIP)
    return list(judgements.select_related("item__queue", "item__final_by", "queue", "user").order_by("-id"))


def tally_rollouts(judgements: Iterable[Judgement], rollouts: Iterable[int]) -> defaultdict[int, PreferenceTally]:
    """What the labels say of each of the rollouts."""
    rollout_ids = set(rollouts)
    tallies: defaultdict[int, PreferenceTally] = defaultdict(PreferenceTally)
    for judgement in judgements:
        for pk in rollout_ids.intersection(judgement.item.rollouts):
            tallies[pk].add(tally_answer(judgement.item.rollouts, judgement.verdict, judgement.tiers, pk))
    return tallies


@require_safe
def rollout_labels(request: LabRequest, rollout_id: int) -> HttpResponse:
    """The block "Labels" of a rollout's page."""
    team, leads = request.team, has_team_permission(request, "label.lead")
    about = get_object_or_404(Rollout.objects.of(team).select_related("run").defer("completion"), pk=rollout_id)
    judgements = judgements_about(team, [about.prompt_id], [about.pk])
    total = PreferenceTally()
    for judgement in judgements:
        total.add(tally_answer(judgement.item.rollouts, judgement.verdict, judgement.tiers, about.pk))
    label_rows = []
    for judgement in judgements[:LISTED]:
        words, other = describe_verdict(judgement.item, judgement.verdict, judgement.tiers, about.pk)
        who = "you" if judgement.user_id == request.user.pk else str(judgement.user) if leads else ""
        label_rows.append(LabelRow(judgement, who, words, other, list_label_extras(judgement)))
    name_others(team, about, label_rows)
    context = {
        "rollout": about,
        "total": total,
        "label_rows": label_rows,
        "count": len(judgements),
        "finals": list_final_decisions(judgements, about.pk),
        "leads": leads,
    }
    return render(request, "labels/rollout_labels.html#rollout", context)


def name_others(team: Team, about: Rollout, label_rows: list[LabelRow]) -> None:
    """Says which rollout a pair's other one is: its sample in the same group, else where it comes from."""
    other_ids = {row.other for row in label_rows if row.other is not None}
    rows = Rollout.objects.of(team).filter(pk__in=other_ids).values_list("pk", "run__number", "run_id", "step", "group", "sample", "phase")
    group_key = (about.run_id, about.step, about.group, about.phase)
    labels = {
        pk: f"sample {sample}" if (run, step, group, phase) == group_key else f"#{number} step {step} sample {sample}"
        for pk, number, run, step, group, sample, phase in rows
    }
    for row in label_rows:
        row.other_label = labels.get(row.other or 0, "")


def list_final_decisions(judgements: Iterable[Judgement], rollout: int) -> list[tuple[Item, str]]:
    """What was decided about conflicts this rollout stands in."""
    settled = {judgement.item_id: judgement.item for judgement in judgements if judgement.item.state == ItemState.SETTLED}
    decided = [(item, item.final) for item in settled.values() if item.final]
    return [(item, describe_verdict(item, final["verdict"], final.get("tiers"), rollout)[0]) for item, final in decided]


@require_safe
def group_labels(request: LabRequest, run_id: Any, phase: str, step: int, group: int) -> HttpResponse:
    """The card "Labels" of a group's page: what was said of each member, and whether the reward orders them the same way."""
    run = get_object_or_404(Run.objects.of(request.team), pk=run_id)
    if phase not in PHASE_LABELS or max(step, group) > MAX_INTEGER:
        raise Http404
    members = list(
        Rollout.objects.filter(run=run, phase=phase, step=step, group=group).only("pk", "sample", "reward", "prompt_id").order_by("sample", "pk")
    )
    if not members:
        raise Http404
    ids = [member.pk for member in members]
    judgements = judgements_about(request.team, {member.prompt_id for member in members}, ids)
    tallies = tally_rollouts(judgements, ids)
    columns = [name for name in COUNTS if any(getattr(tally, name) for tally in tallies.values())]
    rows = [(member, [getattr(tallies[member.pk], name) for name in columns]) for member in members if tallies[member.pk].parts]
    same, votes = with_reward(judgements, {member.pk: member.reward for member in members})
    context = {"rows": rows, "count": len(judgements), "items": len({judgement.item_id for judgement in judgements}), "same": same, "votes": votes}
    context |= {"columns": columns, "queues": sorted({judgement.queue.name for judgement in judgements})}
    return render(request, "labels/rollout_labels.html#group", context)


def with_reward(judgements: Iterable[Judgement], rewards: dict[int, float | None]) -> tuple[int, int]:
    """Of the pairs of members that people and the reward both tell apart: how many both order the same way, and how many there are."""
    same = votes = 0
    for judgement in judgements:
        for better, worse in derive_preferences(judgement.verdict, judgement.tiers, judgement.item.rollouts):
            high, low = rewards.get(better), rewards.get(worse)
            if high is not None and low is not None and high != low:
                votes += 1
                same += high > low
    return same, votes
