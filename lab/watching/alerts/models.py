"""Who wants to be told of what (Rule), what people were told (Notice), and what left the lab (Webhook, Delivery)."""

from __future__ import annotations

import uuid
from types import EllipsisType
from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from lab.teams.accounts.models import Project, Team, User
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.runs.models import Run
from lab.watching.alerts.kinds import KINDS

SUBJECT = 200
KEY = 200


class Direction(models.TextChoices):
    ABOVE = "above"
    BELOW = "below"


class Webhook(TeamOwned):
    """An address of the team that is told by signed requests. Its secret is shown once; ``former`` still signs until ``former_until``.

    ``address`` is sealed (``lab.watching.alerts.addresses``), ``shown`` what pages may show of it.
    """

    team = models.ForeignKey(Team, models.CASCADE, related_name="webhooks")
    name = models.CharField(max_length=80)
    address = models.BinaryField()
    shown = models.CharField(max_length=300)
    secret = models.BinaryField()
    former = models.BinaryField(null=True)
    former_until = models.DateTimeField(null=True)
    enabled = models.BooleanField(default=True)
    disabled_why = models.CharField(max_length=200, blank=True)
    failing_since = models.DateTimeField(null=True)
    delivered_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name


class RuleQuerySet(TeamQuerySet["Rule"]):
    def of(self, team: Team | int, owner: User | EllipsisType | None = ...) -> RuleQuerySet:
        """The rules kept in the team: with ``owner`` a person's own, or those of the team itself (None)."""
        return self.filter(team=team) if owner is ... else self.filter(team=team, owner=owner)

    def listening(self, kind: str) -> RuleQuerySet:
        """Rules that may have to tell something now: enabled, and of nobody who has left."""
        active_owner = Q(owner=None) | Q(owner__is_active=True, owner__memberships__team=models.F("team"), owner__memberships__active=True)
        return self.filter(active_owner, kind=kind, enabled=True).select_related("team", "owner").order_by("pk").distinct()


class Rule(TeamOwned):
    """Of a person (``owner``) or of the team. It tells of what happens after ``since``."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="rules")
    owner = models.ForeignKey(User, models.CASCADE, null=True, related_name="rules")
    kind = models.CharField(max_length=20)
    enabled = models.BooleanField(default=True)
    since = models.DateTimeField(default=timezone.now)

    mine = models.BooleanField(default=False)  # only runs the owner launched, or queues the owner made or is assigned to
    project = models.ForeignKey(Project, models.CASCADE, null=True, related_name="+")
    run = models.ForeignKey(Run, models.CASCADE, null=True, related_name="+")
    words = models.CharField(max_length=100, blank=True)  # part of the run's or queue's name, in any case of letters
    recipe = models.CharField(max_length=100, blank=True)

    metric = models.CharField(max_length=200, blank=True)
    direction = models.CharField(max_length=5, choices=Direction.choices, blank=True)
    number = models.FloatField(null=True)  # the threshold; of a metric without change the width of the band
    steps = models.PositiveIntegerField(null=True)

    inbox = models.BooleanField(default=True)
    email = models.BooleanField(default=False)
    webhook = models.ForeignKey(Webhook, models.SET_NULL, null=True, related_name="rules")

    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TeamManager.from_queryset(RuleQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(RuleQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [
            models.Index(fields=["kind"], condition=Q(enabled=True), name="rule_listening"),
            models.Index(fields=["team", "owner"], name="rule_of"),
        ]

    def __str__(self) -> str:
        return f"{self.words_of_kind}{f' {self.condition}' if self.condition else ''}"

    @property
    def words_of_kind(self) -> str:
        return KINDS[self.kind].words if self.kind in KINDS else self.kind

    @property
    def about(self) -> str:
        return KINDS[self.kind].about if self.kind in KINDS else "team"

    @property
    def condition(self) -> str:
        """``reward above 0.8``, ``entropy within 0.01 for 50 steps``; empty for kinds without one."""
        if not self.metric:
            return ""
        if self.steps:
            return f"{self.metric} within {self.number or 0:g} for {self.steps} steps"
        return f"{self.metric} {self.direction} {self.number or 0:g}"


class NoticeQuerySet(TeamQuerySet["Notice"]):
    def of(self, team: Team | int, user: User | int | None = None) -> NoticeQuerySet:
        """What people were told of in the team; with ``user``: that person's inbox."""
        return self.filter(team=team) if user is None else self.filter(team=team, user=user, inbox=True)

    def unread(self) -> NoticeQuerySet:
        return self.filter(read_at=None)


class Notice(TeamOwned):
    """One person was told one thing. ``key`` says which: nobody is told the same twice."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    user = models.ForeignKey(User, models.CASCADE, related_name="notices")
    kind = models.CharField(max_length=20)
    key = models.CharField(max_length=KEY)
    subject = models.CharField(max_length=SUBJECT)
    text = models.TextField(blank=True)
    url = models.CharField(max_length=500, blank=True)  # a path of the lab, with the team
    rule = models.ForeignKey(Rule, models.SET_NULL, null=True, related_name="+")
    inbox = models.BooleanField(default=True)  # False: by mail only
    created_at = models.DateTimeField(default=timezone.now)
    read_at = models.DateTimeField(null=True)

    objects = TeamManager.from_queryset(NoticeQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(NoticeQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user", "key"], name="told_once")]
        indexes = [
            models.Index(fields=["user", "team", "-created_at"], name="notice_newest"),
            models.Index(fields=["user", "team"], condition=Q(read_at=None, inbox=True), name="notice_unread"),
        ]

    def __str__(self) -> str:
        return self.subject

    @property
    def words_of_kind(self) -> str:
        return KINDS[self.kind].words if self.kind in KINDS else self.kind


class DeliveryState(models.TextChoices):
    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"  # given up
    DROPPED = "dropped"  # no longer wanted: the webhook or the person is gone


class Delivery(TeamOwned):
    """One mail or one webhook request, with every try of it. What was answered is never kept, only its status."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)  # in the request's body: the same in every try
    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    notice = models.ForeignKey(Notice, models.CASCADE, null=True, related_name="deliveries")  # a mail
    webhook = models.ForeignKey(Webhook, models.CASCADE, null=True, related_name="deliveries")
    key = models.CharField(max_length=KEY)
    event: models.JSONField[dict[str, Any], dict[str, Any]] = models.JSONField(default=dict)  # what a webhook is told
    state = models.CharField(max_length=10, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    tries = models.PositiveSmallIntegerField(default=0)
    next_try = models.DateTimeField(db_default=Now())
    status = models.PositiveSmallIntegerField(null=True)  # of the last answer
    problem = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    tried_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["webhook", "key"], name="delivered_once"),
            models.UniqueConstraint(fields=["notice"], name="mailed_once"),
        ]
        indexes = [
            models.Index(fields=["next_try"], condition=Q(state="waiting"), name="delivery_waiting"),
            models.Index(fields=["webhook", "-created_at"], name="delivery_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.key} {self.state}"


class Watch(models.Model):
    """How far a watcher has looked; its row is its lock, so that of several workers one looks."""

    name = models.CharField(max_length=20, primary_key=True)
    seen_to = models.DateTimeField(db_default=Now())
    next_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.name} to {self.seen_to:%Y-%m-%d %H:%M:%S}"


class AlertMark(TeamOwned):
    """A step of a run at which an alert was raised, for the run's charts; it outlives its rule, as the notice does."""

    team_path = "run__team"
    binned_path = "run__binned_at"

    run = models.ForeignKey(Run, models.CASCADE, related_name="alert_marks")
    owner = models.ForeignKey(User, models.CASCADE, null=True, related_name="+")  # only for this person; None: for the team
    reader = models.BigIntegerField(default=0)  # the owner's id or 0: the database takes two empty owners for different ones
    key = models.CharField(max_length=KEY)
    step = models.PositiveIntegerField()
    label = models.CharField(max_length=SUBJECT)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "key", "reader"], name="marked_once")]

    def __str__(self) -> str:
        return f"{self.label} at step {self.step}"


class Looked(TeamOwned):
    """Up to which point of a run's spool a rule has looked at it."""

    team_path = "rule__team"

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="+")
    run = models.ForeignKey(Run, models.CASCADE, related_name="+")
    offset = models.BigIntegerField(default=0)
    at = models.DateTimeField(default=timezone.now)
    told = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["rule", "run"], name="looked_once")]

    def __str__(self) -> str:
        return f"rule {self.rule_id} at {self.offset} of {self.run_id}"


class Started(TeamOwned):
    """This person has been given the rules everybody begins with in this team; what they made of them since is theirs."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="+")
    user = models.ForeignKey(User, models.CASCADE, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="started_once")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"
