"""Branches: a stored completion up to one token, another token there (or none chosen), and what a checkpoint of the run wrote from it.

Rows of their own: no list, statistic or chart over rollouts sees them. A continuation that goes to a labelling queue becomes a rollout of the
phase ``play``, as a sample of the playground does.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.models.playground.models import SamplerQuestion, WrittenCompletion
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Checkpoint

USER = settings.AUTH_USER_MODEL


class Choice(models.TextChoices):
    """What stands at the place."""

    TOKEN = "token", "another token"
    KEEP = "keep", "the token that was sampled"
    POLICY = "policy", "the policy's choice"


class PlaceQuestion(SamplerQuestion):
    """A question about token ``place`` of a rollout, to a checkpoint. ``behind``: updates between it and the policy that sampled, > 0 = older."""

    binned_path = "rollout__run__binned_at"

    place = models.PositiveIntegerField()
    label = models.CharField(max_length=200)  # of the checkpoint, whose row may be deleted later
    behind = models.IntegerField(default=0)
    temperature = models.FloatField(default=1.0)

    class Meta:
        abstract = True


class TokenAlternatives(PlaceQuestion):
    """How likely which tokens were. ``result``: the trainers' line ``alternatives`` (trainers/policies/branching.py); None until it is there."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="token_alternatives")
    user = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="token_alternatives")
    checkpoint = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="+")
    result = models.JSONField(null=True)

    class Meta:
        indexes = [models.Index(fields=["rollout", "place"], name="alternatives_of_place")]

    def __str__(self) -> str:
        return f"alternatives at token {self.place} of rollout {self.rollout_id}"


class Branch(PlaceQuestion):
    """``chosen``: id of the token at the place; None where the policy chooses. What the checkpoint thought of the place: ``entropy`` in nats,
    ``logprob`` of the chosen token. ``note``: what a reader of the scores has to know.
    """

    team = models.ForeignKey(Team, models.CASCADE, related_name="branches")
    user = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    rollout = models.ForeignKey(Rollout, models.CASCADE, related_name="branches")
    checkpoint = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="+")
    choice = models.CharField(max_length=6, choices=Choice.choices)
    chosen = models.PositiveIntegerField(null=True)
    chosen_text = models.CharField(max_length=200, blank=True)
    sampled_text = models.CharField(max_length=200, blank=True)  # the token that was sampled there
    count = models.PositiveSmallIntegerField(default=4)
    max_tokens = models.PositiveIntegerField(default=256)  # new ones, after the place
    seed = models.PositiveIntegerField(default=0)
    entropy = models.FloatField(null=True)
    logprob = models.FloatField(null=True)
    special_tokens = models.JSONField(default=dict)  # id -> text
    device = models.CharField(max_length=50, blank=True)
    note = models.TextField(blank=True)

    class Meta:
        verbose_name_plural = "branches"
        indexes = [models.Index(fields=["rollout", "-created_at"], name="branch_of_rollout")]

    def __str__(self) -> str:
        return f"branch at token {self.place} of rollout {self.rollout_id}"

    @property
    def kept(self) -> int:
        """Tokens that every continuation begins with: the prefix, and what was chosen at the place."""
        return self.place + (self.chosen is not None)


class Continuation(WrittenCompletion):
    """One completion of a branch, its kept tokens included. ``reward``: the weighted sum of the run's own reward functions and nothing else; methods
    that shape rewards are not applied. ``problem``: why a function failed on it.
    """

    team_path = "branch__team"
    binned_path = "branch__rollout__run__binned_at"

    branch = models.ForeignKey(Branch, models.CASCADE, related_name="continuations")
    mask = models.BinaryField(default=b"")  # 1 = written by the policy
    turns = models.JSONField(default=list)  # [[role, start, end], …] in tokens; empty for one turn
    rewards = models.JSONField(default=dict)
    reward = models.FloatField(null=True)
    problem = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["branch", "number"], name="continuation_of_branch")]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.branch}, continuation {self.number + 1}"
