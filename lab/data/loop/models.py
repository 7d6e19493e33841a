"""What ties labels to runs: blind matches of a trained run against where it started, live feeds into queues, and questions of running trainers."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from lab.data.datasets.models import Recall, Version
from lab.labelling.labels.models import Item, Judgement, Queue
from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned
from lab.training.runs.models import Run

USER = settings.AUTH_USER_MODEL


class Match(TeamOwned):
    """Child against parent on held-out prompts. Made when a run is trained from a version, or asked for later; ``queue`` comes once the child has
    finished. The parent is the policy the child started from (its own measurement of step 0) or, where ``against`` is set, that run's last one.
    """

    team = models.ForeignKey(Team, models.CASCADE, related_name="matches")
    child = models.ForeignKey(Run, models.CASCADE, related_name="matches")
    against = models.ForeignKey(Run, models.CASCADE, null=True, related_name="+")
    version = models.ForeignKey(Version, models.SET_NULL, null=True, related_name="matches")
    prompts = models.PositiveIntegerField(default=50)  # how many are asked about
    overlap = models.PositiveSmallIntegerField(default=1)
    labellers = ArrayField(models.BigIntegerField(), default=list)  # who is assigned; empty: whoever may label
    queue = models.OneToOneField(Queue, models.SET_NULL, null=True, related_name="match")
    compared = models.PositiveIntegerField(default=0)  # held-out prompts that both answered
    same = models.PositiveIntegerField(default=0)  # of these, those that both answered with the same text: nobody is asked
    problem = models.CharField(max_length=300, blank=True)  # why there is no queue although the child has finished
    paired_at = models.DateTimeField(null=True)  # when queue or problem came
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["child", "against"], name="match_once", nulls_distinct=False)]

    def __str__(self) -> str:
        return f"match of {self.child}"


class Withdrawal(TeamOwned):
    """What a recall took back: a judgement, or (without one) an item that left its queue or lost its final answer. Undoing looks here."""

    team_path = "recall__team"

    recall = models.ForeignKey(Recall, models.CASCADE, related_name="withdrawals")
    item = models.ForeignKey(Item, models.CASCADE, related_name="+")
    judgement = models.ForeignKey(Judgement, models.CASCADE, null=True, related_name="+")
    before = models.JSONField(null=True)  # of an item: {"state", "final", "final_by", "final_at", "final_comment"}

    class Meta:
        constraints = [models.UniqueConstraint(fields=["recall", "item", "judgement"], name="withdrawal_once", nulls_distinct=False)]

    def __str__(self) -> str:
        return f"item {self.item_id} by recall {self.recall_id}"


class Feed(TeamOwned):
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


class Ask(TeamOwned):
    """A trainer's question: which answers of this group do people prefer? It waits until ``deadline``, then goes on with its fallback."""

    team_path = "run__team"

    run = models.ForeignKey(Run, models.CASCADE, related_name="asks")
    attempt = models.PositiveIntegerField()
    key = models.CharField(max_length=64)  # the trainer's name for it
    step = models.PositiveIntegerField()
    group = models.PositiveIntegerField(db_column="group_index")
    item = models.OneToOneField(Item, models.SET_NULL, null=True, related_name="ask")
    deadline = models.DateTimeField()
    answered_at = models.DateTimeField(null=True)
    rewards = models.JSONField(null=True)  # the tiers that were sent back, places in the item; null = nobody will answer

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "key"], name="ask_once")]

    def __str__(self) -> str:
        return f"question at step {self.step}"
