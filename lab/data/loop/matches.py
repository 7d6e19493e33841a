"""Blind matches: once the child has finished, its held-out answers are paired with those of the other side and become a queue.

The other side is the policy the child started from, which answered the same prompts with the same seed at step 0, or another run's last
measurement. Prompts answered with the same text are counted and nobody is asked. Of the others as many as wanted are drawn with a seed; which
answer stands first is drawn too, so that a place says nothing about a side.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from django.db import IntegrityError, models, transaction
from django.utils import timezone

from lab.data.loop.models import Match
from lab.labelling.labels.models import Kind, Purpose, Queue, QueueMember, SkipHandling
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.lib.refusals import Refusal
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.teams.accounts.permissions import LABELLERS
from lab.training.runs.models import Run, Status

GUIDELINES = """Two policies answered the same prompt. **Which answer is better?**

Read both completely. Prefer the correct answer; if both are correct, the clearer one. “Tie” and “both bad” are valid answers.
The policies are hidden, and the sides change randomly between items.
"""


@dataclass(frozen=True)
class HeldoutAnswer:
    rollout: int
    prompt: int
    text: str


@dataclass(frozen=True)
class Pairing:
    """``pairs``: (child, other) of every prompt that both answered, in the child's order."""

    pairs: list[tuple[HeldoutAnswer, HeldoutAnswer]]

    @property
    def same(self) -> int:
        return sum(child.text == other.text for child, other in self.pairs)

    def drawn(self, count: int, seed: int) -> list[tuple[HeldoutAnswer, HeldoutAnswer]]:
        """At most ``count`` pairs that differ, the same for the same seed."""
        differing = [pair for pair in self.pairs if pair[0].text != pair[1].text]
        return random.Random(seed).sample(differing, min(count, len(differing)))


def request_match(team: Team, user: User | None, child: Run, against: Run | None = None, *, prompts: int = 50, overlap: int = 1) -> Match:
    """A match of a finished run, paired at once. Raises Refusal."""
    for run in (child, against):
        if run is not None and run.team_id != team.pk:
            raise Refusal("Your team has no such run.")
    if against == child:
        raise Refusal("A run cannot be matched against itself. Leave the other run empty to match it against its starting policy.")
    if child.status != Status.FINISHED or (against is not None and against.status != Status.FINISHED):
        raise Refusal("Both runs must have finished: a match compares their last evaluations.")
    if problem := pair_heldout_answers(child, against)[1]:
        raise Refusal(problem)
    try:
        with transaction.atomic():
            match = Match.objects.create(team=team, child=child, against=against, prompts=prompts, overlap=overlap, created_by=user)
    except IntegrityError:
        raise Refusal("This match already exists.") from None
    pair_match(match.pk)
    match.refresh_from_db()
    return match


def pair_match(match_id: int) -> bool:
    """Makes the queue of a match whose child has finished; whether this call did. Of several workers one does it, and all of it or nothing."""
    with transaction.atomic():
        waiting = Match.across_teams.select_for_update(skip_locked=True, of=("self",)).filter(paired_at=None, child__status=Status.FINISHED)
        match = waiting.select_related("child", "against", "team").filter(pk=match_id).first()
        if match is None:
            return False
        pairing, problem = pair_heldout_answers(match.child, match.against)
        match.compared, match.same, match.problem, match.paired_at = len(pairing.pairs), pairing.same, problem, timezone.now()
        if not problem:
            match.queue = make_match_queue(match, pairing)
        match.save(update_fields=["compared", "same", "problem", "paired_at", "queue"])
    return True


def pair_heldout_answers(child: Run, against: Run | None) -> tuple[Pairing, str]:
    """The held-out answers of both sides by prompt, and why there is nothing to ask (else nothing)."""
    last = last_measured(child)
    other, step = (against, last_measured(against)) if against is not None else (child, 0)
    name = f"#{other.number}"
    if last is None or step is None or (against is None and last == 0):
        missing = child if last is None or against is None else other
        return Pairing([]), f"#{missing.number} has no held-out answers at its last step: it was launched without held-out prompts."
    ours, theirs = load_heldout_answers(child, last), load_heldout_answers(other, step)
    pairing = Pairing([(answer, theirs[prompt]) for prompt, answer in ours.items() if prompt in theirs])
    if not pairing.pairs and against is None:
        return pairing, f"{name} was not evaluated before its first step, so there are no answers of its starting policy."
    if not pairing.pairs:
        return pairing, f"#{child.number} and {name} were evaluated on different prompts. Runs with the same task, difficulty and seed share prompts."
    if pairing.same == len(pairing.pairs):
        return pairing, f"Both sides answered all {pairing.same} held-out prompts identically: there is nothing to compare."
    return pairing, ""


def last_measured(run: Run) -> int | None:
    return select_heldout_rollouts(run).order_by("-step").values_list("step", flat=True).first()


def select_heldout_rollouts(run: Run) -> models.QuerySet[Rollout]:
    return Rollout.objects.filter(run=run, phase="heldout", superseded=False)


def load_heldout_answers(run: Run, step: int) -> dict[int, HeldoutAnswer]:
    """Prompt → the answer to it, in the order of the measurement. A prompt that was asked twice is taken once."""
    rows = select_heldout_rollouts(run).filter(step=step, sample=0).order_by("group", "-attempt").values_list("pk", "prompt_id", "completion")
    answers: dict[int, HeldoutAnswer] = {}
    for pk, prompt, text in rows:
        answers.setdefault(prompt, HeldoutAnswer(pk, prompt, text))
    return answers


def make_match_queue(match: Match, pairing: Pairing) -> Queue:
    """A blind queue of the pairs that are drawn, open to whoever may label unless the match is assigned."""
    seed = seed_of(match)
    child, other = match.child, match.against
    name = f"A/B: #{child.number} {child.name} against {f'#{other.number} {other.name}' if other else 'where it started'}"
    assigned = list(
        match.team.memberships.filter(user__in=match.labellers, role__in=LABELLERS, active=True, user__is_active=True).values_list("user", flat=True)
    )
    items = [NewItem(child.prompt, sides) for child, other, sides in shuffle_answer_sides(pairing.drawn(match.prompts, seed), seed)]
    queue = make_queue(
        match.team,
        match.created_by,
        name=name[:100],
        kind=Kind.PAIR,
        items=items,
        project=child.project,
        purpose=Purpose.AB,
        guidelines=GUIDELINES,
        overlap=match.overlap,
        seed=seed,
        blind=True,
        assigned_only=bool(assigned),
        skipping=SkipHandling.OTHERS,
    )
    QueueMember.objects.bulk_create(QueueMember(queue=queue, user_id=user) for user in assigned)
    return queue


def shuffle_answer_sides(pairs: list[tuple[HeldoutAnswer, HeldoutAnswer]], seed: int) -> list[tuple[HeldoutAnswer, HeldoutAnswer, tuple[int, int]]]:
    """With the rollouts in a drawn order."""
    draw = random.Random(seed + 1)
    return [(first, second, (first.rollout, second.rollout) if draw.random() < 0.5 else (second.rollout, first.rollout)) for first, second in pairs]


def seed_of(match: Match) -> int:
    """The same however often the match is paired, another for every match."""
    key = f"{match.child_id}/{match.against_id}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") >> 1
