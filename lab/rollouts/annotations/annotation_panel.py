"""All that was said about one rollout, as its panel shows it."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from django.db.models import Count

from lab.rollouts.annotations.models import Comment, Rating, RolloutTag, StepMark, Tag
from lab.rollouts.annotations.token_stretches import TokenStretch, cut_into_steps
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.tokens import arrays_of, build_token_units
from lab.teams.accounts.models import Team, User
from trainers.contract.arrays import PackError

OFFERED_TAGS = 200  # names that complete what is typed, the most used first
LISTED_STEPS = 100  # steps with buttons of their own in the panel; further ones are marked from the text
SHOWN_OF_STEP = 160  # characters


def units_of(rollout: Rollout) -> list[list[Any]]:
    """The rollout's text by tokens; empty when it came without tokens or they are damaged."""
    packed = RolloutTokens.objects.filter(rollout=rollout).first()
    if packed is None:
        return []
    try:
        return build_token_units(rollout.completion, arrays_of(packed), rollout.run.special_tokens, rollout.turns)
    except PackError:
        return []


@lru_cache(maxsize=32)
def load_rollout_steps(rollout_id: int, run_id: uuid.UUID) -> tuple[TokenStretch, ...]:
    """Kept for who reads on: tokens never change, and 200,000 of them take a second. The run's id tells apart rollouts of two databases."""
    rollout = Rollout.across_teams.select_related("run").get(pk=rollout_id, run=run_id)
    return tuple(cut_into_steps(units_of(rollout)))


@dataclass
class CommentThread:
    first: Comment
    answers: list[Comment] = field(default_factory=list)

    @property
    def stamp(self) -> str:
        """Changes whenever the thread looks different."""
        rows = [self.first, *self.answers]
        return compute_state_digest([(row.pk, row.edited_at, row.deleted_at, row.resolved_at, row.user_id) for row in rows])

    @property
    def key(self) -> str:
        """For the next answer: a form that is sent twice answers once."""
        return str(uuid.uuid4())


@dataclass
class AnnotatedStep:
    number: int
    stretch: TokenStretch
    mine: str = ""
    others: list[StepMark] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.stretch.text[:SHOWN_OF_STEP]


def compute_state_digest(state: object) -> str:
    return hashlib.md5(repr(state).encode(), usedforsecurity=False).hexdigest()[:12]


class AnnotationPanel:
    """Lazy: ``version`` is what a page that looks for news costs, the steps are worked out only for a page that shows them."""

    def __init__(self, team: Team, user: User, rollout: Rollout) -> None:
        self.team, self.user, self.rollout = team, user, rollout

    @cached_property
    def tagged(self) -> list[RolloutTag]:
        return list(RolloutTag.objects.filter(rollout=self.rollout).select_related("tag", "user").order_by("tag__name"))

    @cached_property
    def ratings(self) -> list[Rating]:
        return list(Rating.objects.filter(rollout=self.rollout).select_related("user").order_by("pk"))

    @cached_property
    def comments(self) -> list[Comment]:
        rows = Comment.objects.of(self.team).filter(rollout=self.rollout)
        return list(rows.select_related("user", "resolved_by").order_by("created_at", "pk"))

    @cached_property
    def marks(self) -> list[StepMark]:
        return list(StepMark.objects.filter(rollout=self.rollout).select_related("user").order_by("start", "pk"))

    @property
    def tags_stamp(self) -> str:
        return compute_state_digest([(row.tag_id, row.tag.name) for row in self.tagged])

    @property
    def ratings_stamp(self) -> str:
        return compute_state_digest([(row.user_id, row.value) for row in self.ratings])

    @property
    def marks_stamp(self) -> str:
        return compute_state_digest([(row.user_id, row.start, row.end, row.mark) for row in self.marks])

    @cached_property
    def version(self) -> str:
        return compute_state_digest([self.tags_stamp, self.ratings_stamp, self.marks_stamp, [thread.stamp for thread in self.threads]])

    @property
    def mean(self) -> float | None:
        return sum(row.value for row in self.ratings) / len(self.ratings) if self.ratings else None

    @property
    def mine(self) -> int | None:
        return next((row.value for row in self.ratings if row.user_id == self.user.pk), None)

    @cached_property
    def threads(self) -> list[CommentThread]:
        """In order of their beginning. Deleted comments are left out, save the first of a thread that has answers."""
        threads = {row.pk: CommentThread(row) for row in self.comments if row.parent_id is None}
        for row in self.comments:
            if row.parent_id in threads and row.deleted_at is None:
                threads[row.parent_id].answers.append(row)
        return [thread for thread in threads.values() if thread.first.deleted_at is None or thread.answers]

    @property
    def open_threads(self) -> int:
        return sum(thread.first.resolved_at is None for thread in self.threads)

    @cached_property
    def steps(self) -> list[AnnotatedStep]:
        steps = [AnnotatedStep(number, stretch) for number, stretch in enumerate(load_rollout_steps(self.rollout.pk, self.rollout.run_id), 1)]
        by_start = {step.stretch.start: step for step in steps}
        for row in self.marks:
            if step := by_start.get(row.start):
                if row.user_id == self.user.pk:
                    step.mine = row.mark
                else:
                    step.others.append(row)
        return steps

    @property
    def listed_steps(self) -> list[AnnotatedStep]:
        return self.steps[:LISTED_STEPS]

    @property
    def ranges(self) -> str:
        """Every step as first-end in tokens, for the page to find the current one."""
        return ",".join(f"{step.stretch.start}-{step.stretch.end}" for step in self.steps)

    @property
    def marked(self) -> list[tuple[AnnotatedStep, str]]:
        """(step, verdict to show in the text): one's own, else what most others said."""
        verdicts = []
        for step in self.steps:
            marks = [row.mark for row in step.others]
            if verdict := step.mine or (max(marks, key=marks.count) if marks else ""):
                verdicts.append((step, verdict))
        return verdicts

    @property
    def offered(self) -> list[str]:
        """The team's tags, the most used first."""
        rows = Tag.objects.filter(team=self.team).annotate(used=Count("tagged")).order_by("-used", "name")
        return list(rows.values_list("name", flat=True)[:OFFERED_TAGS])
