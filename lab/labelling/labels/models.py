"""Labelling queues, their items, who holds which item, and what people said.

An item is judged by up to ``Queue.overlap`` people. A ``Claim`` is one person's lock on one item; it takes a seat (``Item.room`` counts the free
ones) until it is submitted, released or expired. A ``Judgement`` keeps its seat. What a judgement says about which answer is better is written
out as ``Preference`` rows, one a pair, so that agreement, datasets and win rates read one table however the label was given.

Places are those of ``Item.rollouts`` (from 0) everywhere in the database; the order a person saw is in ``order``: place shown → place stored.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from lab.rollouts.trajectories.models import Prompt
from lab.teams.accounts.models import Project, Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet

USER = settings.AUTH_USER_MODEL


class Kind(models.TextChoices):
    PAIR = "pair", "Pairs: which of two answers is better"
    RANKING = "ranking", "Ranking of a group, with ties"
    SINGLE = "single", "Single answers: good or bad, steps, spans, corrections"
    CLEARER = "clearer", "Two pairs: in which one is the difference clearer"


ROLLOUTS = {Kind.PAIR: (2, 2), Kind.RANKING: (2, 26), Kind.SINGLE: (1, 1), Kind.CLEARER: (4, 4)}  # how many an item has, least and most


class QueueStatus(models.TextChoices):
    OPEN = "open"
    PAUSED = "paused"
    CLOSED = "closed"


class Purpose(models.TextChoices):
    LABELS = "labels"  # becomes datasets
    AB = "ab"  # a trained run against the policy it started from
    REWARD = "reward"  # votes go back to a running trainer


class Strategy(models.TextChoices):
    RANDOM = "random", "Random"
    LARGEST_GAP = "largest-gap", "Largest reward gap first"
    SMALLEST_GAP = "smallest-gap", "Smallest reward gap first"
    ENTROPY = "entropy", "Highest entropy first"
    DISAGREEMENT = "disagreement", "Human-versus-reward disagreement first"


class SkipHandling(models.TextChoices):
    OTHERS = "others", "Somebody else gets the item"
    DROP = "drop", "The item leaves the queue"
    NEVER = "never", "Skipping is not allowed"


class Rationale(models.TextChoices):
    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class Queue(TeamOwned):
    """A labelling project: what is asked about which rollouts, of whom, and under which rules."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="queues")
    project = models.ForeignKey(Project, models.SET_NULL, null=True, related_name="queues")
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    purpose = models.CharField(max_length=10, choices=Purpose.choices, default=Purpose.LABELS)
    status = models.CharField(max_length=8, choices=QueueStatus.choices, default=QueueStatus.OPEN)
    guidelines = models.TextField(blank=True)  # Markdown
    created_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    selection = models.TextField(blank=True)  # the browser's query string it was made from
    strategy = models.CharField(max_length=20, choices=Strategy.choices, default=Strategy.RANDOM)
    seed = models.PositiveIntegerField(default=0)

    overlap = models.PositiveSmallIntegerField(default=1)  # labels an item
    lock_minutes = models.PositiveSmallIntegerField(default=15)
    assigned_only = models.BooleanField(default=False)  # False: open to every annotator of the team
    skipping = models.CharField(max_length=8, choices=SkipHandling.choices, default=SkipHandling.OTHERS)
    due = models.DateTimeField(null=True)

    blind = models.BooleanField(default=True)  # run, step and reward hidden
    strength = models.BooleanField(default=True)  # asks how much better, 1 to 3
    rationale = models.CharField(max_length=8, choices=Rationale.choices, default=Rationale.OPTIONAL)
    correction = models.BooleanField(default=False)  # asks for a corrected answer
    steps = models.BooleanField(default=False)  # asks for good, bad or neutral per step
    spans = models.BooleanField(default=False)  # asks for good and bad stretches of tokens
    rubric = models.JSONField(default=list)  # [{"name", "label", "kind": "scale"|"choice"|"yesno", "choices": [], "required": bool}]

    reviewed = models.BooleanField(default=False)  # judgements count once a reviewer has accepted them
    min_trust = models.FloatField(null=True)  # share of gold items got right below which a labeller is paused; null = never
    trust_after = models.PositiveSmallIntegerField(default=10)  # gold items judged before that is looked at

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="queue_newest")]

    def __str__(self) -> str:
        return self.name


class QueueMember(TeamOwned):
    """What a person may do in one queue beyond their role, and whether they are paused in it."""

    team_path = "queue__team"

    queue = models.ForeignKey(Queue, models.CASCADE, related_name="members")
    user = models.ForeignKey(USER, models.CASCADE, related_name="+")
    labels = models.BooleanField(default=True)
    reviews = models.BooleanField(default=False)
    paused_at = models.DateTimeField(null=True)
    paused_reason = models.CharField(max_length=300, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["queue", "user"], name="queue_member_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.queue}"


class ItemState(models.TextChoices):
    OPEN = "open"  # wants more labels
    DONE = "done"  # has them all, and they agree (or there is one)
    CONFLICT = "conflict"  # has them all, and they differ
    SETTLED = "settled"  # somebody decided: ``final``
    DROPPED = "dropped"  # left the queue by skipping or recall


class Item(TeamOwned):
    """One question of a queue: its rollouts, in the stored order. Rollouts of asks that are not stored yet stand as ``texts``."""

    team_path = "queue__team"

    queue = models.ForeignKey(Queue, models.CASCADE, related_name="items")
    place = models.FloatField()  # served in this order
    prompt = models.ForeignKey(Prompt, models.PROTECT, related_name="+", db_constraint=False)
    rollouts = ArrayField(models.BigIntegerField(), default=list)
    texts = models.JSONField(null=True)  # [completion, …] instead of rollouts
    room = models.SmallIntegerField()  # seats left: overlap - live claims - judgements
    labels = models.SmallIntegerField(default=0)  # judgements that count
    state = models.CharField(max_length=8, choices=ItemState.choices, default=ItemState.OPEN)
    gold = models.JSONField(null=True)  # the known answer, {"verdict": …}; never leaves the server before the person has answered
    repeats = models.ForeignKey("self", models.SET_NULL, null=True, related_name="repeated")  # the gold item that is asked again here
    final = models.JSONField(null=True)  # the adjudicated answer
    final_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    final_at = models.DateTimeField(null=True)
    final_comment = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["queue", "place", "id"], condition=Q(room__gt=0, state="open"), name="item_to_claim"),
            models.Index(fields=["queue", "state", "place", "id"], name="item_by_state"),
            models.Index(fields=["prompt"], name="item_prompt"),
        ]

    def __str__(self) -> str:
        return f"item {self.pk}"


class Claim(TeamOwned):
    """One person's lock on one item, with what they have written so far.

    When its time runs out it loses its seat but not its draft: the row stays, and takes the seat again while that is free.
    """

    team_path = "queue__team"

    item = models.ForeignKey(Item, models.CASCADE, related_name="claims")
    queue = models.ForeignKey(Queue, models.CASCADE, related_name="claims")
    user = models.ForeignKey(USER, models.CASCADE, related_name="+")
    token = models.UUIDField(default=uuid.uuid4, unique=True)
    order = ArrayField(models.SmallIntegerField())
    draft = models.JSONField(default=dict)
    seated = models.BooleanField(default=True)  # False: given back or run out; only the draft is left
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    read_at: datetime  # of rows that ``list_live_claims`` gives

    class Meta:
        constraints = [models.UniqueConstraint(fields=["item", "user"], name="claim_once")]
        indexes = [
            models.Index(fields=["queue", "user", "created_at"], name="claim_of_user"),
            models.Index(fields=["queue", "expires_at"], condition=Q(seated=True), name="claim_expiry"),
        ]

    def __str__(self) -> str:
        return f"claim on item {self.item_id}"


class Verdict(models.TextChoices):
    A = "a"  # the first of item.rollouts is better
    B = "b"
    TIE = "tie"
    BAD = "bad"  # both bad; of a single answer: bad
    GOOD = "good"
    NEUTRAL = "neutral"
    FIRST = "first"  # of two pairs, the difference in rollouts 0 and 1 is the clearer
    SECOND = "second"
    RANKED = "ranked"
    SKIP = "skip"


class JudgementState(models.TextChoices):
    SUBMITTED = "submitted"
    ACCEPTED = "accepted"
    RETURNED = "returned"  # the reviewer sent it back; does not count until it is submitted again
    WITHDRAWN = "withdrawn"  # undone by its author, or recalled


COUNTING = (JudgementState.SUBMITTED, JudgementState.ACCEPTED)


class JudgementQuerySet(TeamQuerySet["Judgement"]):
    def counting(self) -> JudgementQuerySet:
        return self.filter(state__in=COUNTING)


class Judgement(TeamOwned):
    """What one person said about one item."""

    team_path = "queue__team"

    item = models.ForeignKey(Item, models.CASCADE, related_name="judgements")
    queue = models.ForeignKey(Queue, models.CASCADE, related_name="judgements")
    user = models.ForeignKey(USER, models.CASCADE, related_name="judgements")
    key = models.UUIDField(unique=True)  # made by the page: sending the same answer twice makes one
    verdict = models.CharField(max_length=8, choices=Verdict.choices)
    strength = models.PositiveSmallIntegerField(null=True)
    tiers = models.JSONField(null=True)  # of a ranking: [[places], …], best first
    rubric = models.JSONField(default=dict)
    rationale = models.TextField(blank=True)
    correction = models.TextField(blank=True)
    steps = models.JSONField(default=list)  # [{"start", "end", "mark", "text"}] in tokens, with the text it covered
    spans = models.JSONField(default=list)  # the same, marks good and bad
    order = ArrayField(models.SmallIntegerField())
    seconds = models.FloatField()  # between being shown and being submitted
    state = models.CharField(max_length=10, choices=JudgementState.choices, default=JudgementState.SUBMITTED)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    objects = TeamManager.from_queryset(JudgementQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(JudgementQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        constraints = [models.UniqueConstraint(fields=["item", "user"], name="judged_once")]
        indexes = [
            models.Index(fields=["queue", "user", "-id"], name="judgement_of_user"),
            models.Index(fields=["queue", "-id"], name="judgement_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.verdict} on item {self.item_id}"


class Preference(TeamOwned):
    """``chosen`` is better than ``rejected`` (rollout ids) by one judgement. None inside a tie, none of a skip."""

    team_path = "item__queue__team"

    judgement = models.ForeignKey(Judgement, models.CASCADE, related_name="preferences")
    item = models.ForeignKey(Item, models.CASCADE, related_name="preferences")
    chosen = models.BigIntegerField()
    rejected = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["judgement", "chosen", "rejected"], name="preference_once")]
        indexes = [models.Index(fields=["item"], name="preference_of_item"), models.Index(fields=["chosen"], name="preference_chosen")]

    def __str__(self) -> str:
        return f"{self.chosen} over {self.rejected}"


class Change(TeamOwned):
    """History: one row each time a judgement or an item's final answer changed. Never updated, never deleted."""

    team_path = "item__queue__team"

    item = models.ForeignKey(Item, models.CASCADE, related_name="changes")
    judgement = models.ForeignKey(Judgement, models.SET_NULL, null=True, related_name="changes")
    user = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")  # who did it
    what = models.CharField(max_length=20)  # submitted, revised, undone, skipped, accepted, returned, settled, recalled, restored
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    comment = models.TextField(blank=True)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["item", "id"], name="change_of_item")]

    def __str__(self) -> str:
        return f"{self.what} at {self.at:%Y-%m-%d %H:%M}"


class Ordering(TeamOwned):
    """When the items of a disagreement-first queue that nobody has seen were last put in order, and from what."""

    team_path = "queue__team"

    queue = models.OneToOneField(Queue, models.CASCADE, related_name="ordering")
    at = models.DateTimeField(auto_now=True)
    labels = models.PositiveIntegerField()  # labels the queue had then
    votes = models.PositiveIntegerField()  # earlier votes the model was fitted on; 0 = too few for one
    moved = models.PositiveIntegerField()  # items that got another place

    def __str__(self) -> str:
        return f"order of {self.queue_id} after {self.labels} labels"


class KeyMap(models.Model):
    """The keys that a person gave to actions of the labelling page (``keymap``), where they differ from the usual ones."""

    user = models.ForeignKey(USER, models.CASCADE, related_name="+")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    keys = models.JSONField(default=dict)  # action → one character

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "kind"], name="keys_once")]

    def __str__(self) -> str:
        return f"keys of {self.user_id} for {self.kind}"
