"""What people say about rollouts while they read: tags, ratings, comments on stretches of tokens, marks on steps, labels on turns. Who and when stays
with each.

Positions are tokens [start, end) of the rollout; ``snapshot`` is the text they covered, which outlives the rollout.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower

from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned

USER = settings.AUTH_USER_MODEL


class Tag(TeamOwned):
    team = models.ForeignKey(Team, models.CASCADE, related_name="tags")
    name = models.CharField(max_length=50)
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint("team", Lower("name"), name="tag_once")]
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class RolloutTag(TeamOwned):
    team_path = "tag__team"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="tagged", db_constraint=False)
    tag = models.ForeignKey(Tag, models.CASCADE, related_name="tagged")
    user = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rollout", "tag"], name="tagged_once")]

    def __str__(self) -> str:
        return f"{self.tag} on rollout {self.rollout_id}"


class Rating(TeamOwned):
    """One to five, one a person."""

    team_path = "rollout__run__team"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="ratings", db_constraint=False)
    user = models.ForeignKey(USER, models.CASCADE, related_name="+")
    value = models.PositiveSmallIntegerField()
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rollout", "user"], name="rated_once"),
            models.CheckConstraint(condition=models.Q(value__gte=1, value__lte=5), name="rating_range"),
        ]

    def __str__(self) -> str:
        return f"{self.value} for rollout {self.rollout_id}"


class Comment(TeamOwned):
    """A thread on a rollout (``start`` null) or on a stretch of its tokens; answers have a ``parent`` and no stretch of their own."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="comments")
    rollout = models.ForeignKey(Rollout, models.SET_NULL, null=True, related_name="comments", db_constraint=False)
    parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="answers")
    user = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    text = models.TextField()
    start = models.PositiveIntegerField(null=True)
    end = models.PositiveIntegerField(null=True)
    snapshot = models.TextField(blank=True)
    place = models.CharField(max_length=200, blank=True)  # run, step, group and sample in words, for when the rollout is gone
    key = models.UUIDField(null=True)  # made by the page: sending the same comment twice makes one
    created_at = models.DateTimeField(auto_now_add=True)
    edited_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    resolved_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="comment_once")]
        indexes = [models.Index(fields=["team", "-id"], name="comment_newest")]
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return self.text[:80]


class StepVerdict(models.TextChoices):
    GOOD = "good"
    BAD = "bad"
    NEUTRAL = "neutral"


class StepMark(TeamOwned):
    """A person's verdict on one reasoning step of a trajectory: tokens [start, end)."""

    team_path = "rollout__run__team"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="step_marks", db_constraint=False)
    user = models.ForeignKey(USER, models.CASCADE, related_name="+")
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()
    mark = models.CharField(max_length=8, choices=StepVerdict.choices)
    snapshot = models.TextField(blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rollout", "user", "start"], name="step_marked_once")]
        ordering = ["start"]

    def __str__(self) -> str:
        return f"{self.mark} on tokens {self.start} to {self.end}"


class TurnVerdict(TeamOwned):
    """A person's verdict on one turn of an episode: on what was written from ``node`` of the rollout's tree on.

    A verdict that is changed or taken back stays, with the time; one that counts has no ``withdrawn_at``, and a person has one a turn.
    """

    team_path = "rollout__run__team"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="turn_verdicts", db_constraint=False)
    user = models.ForeignKey(USER, models.CASCADE, related_name="+")
    node = models.PositiveIntegerField()
    verdict = models.CharField(max_length=8, choices=StepVerdict.choices)  # good or bad
    snapshot = models.TextField(blank=True)  # the turn's text
    created_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rollout", "user", "node"], condition=models.Q(withdrawn_at=None), name="turn_judged_once")]
        ordering = ["node", "pk"]

    def __str__(self) -> str:
        return f"{self.verdict} on the turn at node {self.node}"


class TurnPreference(TeamOwned):
    """Of two branches of one state the one that a person prefers. Each is a node of a rollout's tree; mostly of the same rollout."""

    team_path = "rollout__run__team"

    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="turn_preferences", db_constraint=False)
    chosen = models.PositiveIntegerField()
    against = models.ForeignKey(Rollout, models.CASCADE, related_name="+", db_constraint=False)  # whose tree ``rejected`` is in
    rejected = models.PositiveIntegerField()
    user = models.ForeignKey(USER, models.CASCADE, related_name="+")
    chosen_text = models.TextField(blank=True)
    rejected_text = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    withdrawn_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rollout", "chosen", "against", "rejected", "user"], condition=models.Q(withdrawn_at=None), name="branch_preferred_once"
            )
        ]
        ordering = ["chosen", "pk"]

    def __str__(self) -> str:
        return f"node {self.chosen} over node {self.rejected}"
