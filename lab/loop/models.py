"""What ties labels to runs: blind matches of a trained run against where it started, live feeds into queues, and questions of running trainers."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from lab.accounts.models import Team
from lab.datasets.models import Version
from lab.labels.models import Item, Queue
from lab.runs.models import Run

USER = settings.AUTH_USER_MODEL


class Match(models.Model):
    """Child against parent on held-out prompts. Made when a run is trained from a version; ``queue`` comes once the child has finished."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="matches")
    child = models.OneToOneField(Run, models.CASCADE, related_name="match")
    version = models.ForeignKey(Version, models.SET_NULL, null=True, related_name="matches")
    prompts = models.PositiveIntegerField(default=50)  # how many are asked about
    overlap = models.PositiveSmallIntegerField(default=1)
    queue = models.OneToOneField(Queue, models.SET_NULL, null=True, related_name="match")
    same = models.PositiveIntegerField(default=0)  # prompts that both answered with the same text: nobody is asked
    problem = models.CharField(max_length=300, blank=True)  # why there is no queue although the child has finished
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"match of {self.child}"


class Feed(models.Model):
    """A share of a running run's groups goes to a queue as they arrive."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="feeds")
    run = models.ForeignKey(Run, models.CASCADE, related_name="feeds")
    queue = models.ForeignKey(Queue, models.CASCADE, related_name="feeds")
    share = models.FloatField()  # of the groups, 0 to 1
    most = models.PositiveIntegerField(default=200)  # items; then it stops
    routed = models.PositiveIntegerField(default=0)
    seen_to = models.BigIntegerField(default=0)  # id of the newest rollout that was looked at
    stopped_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "queue"], name="feed_once")]

    def __str__(self) -> str:
        return f"feed of {self.run} into {self.queue}"


class Ask(models.Model):
    """A trainer's question: which answers of this group do people prefer? It waits until ``deadline``, then goes on with its fallback."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="asks")
    attempt = models.PositiveIntegerField()
    key = models.CharField(max_length=64)  # the trainer's name for it
    step = models.PositiveIntegerField()
    group = models.PositiveIntegerField(db_column="group_index")
    item = models.OneToOneField(Item, models.SET_NULL, null=True, related_name="ask")
    deadline = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    rewards = models.JSONField(null=True)  # one a member, as sent back

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "key"], name="ask_once")]

    def __str__(self) -> str:
        return f"question at step {self.step}"
