"""Names that point at checkpoints, what it takes to get one, what is kept on the disk, and copies on a hub. A policy is a row of runs.Checkpoint."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models.functions import Lower, Now

from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamOwned
from lab.training.runs.models import Checkpoint

USER = settings.AUTH_USER_MODEL
NAME_LENGTH = 40
WORDS_LENGTH = 1000
UNDO = timedelta(minutes=15)  # how long a deletion that a person asked for can be taken back


class Alias(TeamOwned):
    """A name of the team for at most one checkpoint at a time. ``checkpoint`` None: nobody holds it."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="aliases")
    name = models.SlugField(max_length=NAME_LENGTH)
    checkpoint = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="aliases")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(models.F("team"), Lower("name"), name="alias_name_in_team")]
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        return self.name


class Gate(TeamOwned):
    """What a checkpoint needs before it may hold the alias; an alias without a row needs nothing but an admin."""

    team_path = "alias__team"

    class Against(models.TextChoices):
        ANY = "any", "anything it was matched with"
        START = "start", "the policy its run started from"
        HOLDER = "holder", "the run whose policy holds the alias"

    alias = models.OneToOneField(Alias, models.CASCADE, related_name="gate")
    votes = models.PositiveIntegerField(default=20)  # blind votes of one match
    low = models.FloatField(default=0.5)  # the lower bound of its win rate has to be above this
    against = models.CharField(max_length=6, choices=Against.choices, default=Against.ANY)
    complete = models.BooleanField(default=True)  # every prompt of the match is answered: nobody stops asking when it looks good
    second_reviewer = models.BooleanField(default=True)  # who approves neither asked nor launched the run
    no_recalls = models.BooleanField(default=True)
    no_unsafe = models.BooleanField(default=True)  # no open safety label on what its run sampled
    no_findings = models.BooleanField(default=False)  # of the doctor
    changed_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"gate of {self.alias}"

    @property
    def percent(self) -> float:
        """``low`` as the form has it."""
        return round(100 * self.low, 2)


class ProposalState(models.TextChoices):
    OPEN = "open"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class Proposal(TeamOwned):
    """Somebody asks that a checkpoint get an alias; somebody else answers."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="proposals")
    alias = models.ForeignKey(Alias, models.CASCADE, related_name="proposals")
    checkpoint = models.ForeignKey(Checkpoint, models.CASCADE, related_name="proposals")
    state = models.CharField(max_length=9, choices=ProposalState.choices, default=ProposalState.OPEN)
    reason = models.CharField(max_length=WORDS_LENGTH, blank=True)
    asked_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(auto_now_add=True)
    comment = models.CharField(max_length=WORDS_LENGTH, blank=True)
    decided_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    evidence = models.JSONField(default=list)  # the conditions as they stood when it was decided

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["alias", "checkpoint"], condition=models.Q(state="open"), name="one_open_proposal"),
        ]
        indexes = [models.Index(fields=["team", "state", "-id"], name="proposal_open")]

    def __str__(self) -> str:
        return f"{self.checkpoint} as {self.alias}"


class AliasMove(TeamOwned):
    """One line of an alias's history. Labels are kept as they were: a run may be deleted."""

    team_path = "alias__team"

    alias = models.ForeignKey(Alias, models.CASCADE, related_name="moves")
    checkpoint = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="+")
    label = models.CharField(max_length=200, blank=True)  # of who holds it from now on; empty: nobody
    before = models.ForeignKey(Checkpoint, models.SET_NULL, null=True, related_name="+")
    before_label = models.CharField(max_length=200, blank=True)
    proposal = models.ForeignKey(Proposal, models.SET_NULL, null=True, related_name="+")
    by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    at = models.DateTimeField(auto_now_add=True)
    comment = models.CharField(max_length=WORDS_LENGTH, blank=True)
    back = models.BooleanField(default=False)  # a roll back

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]

    def __str__(self) -> str:
        return f"{self.alias}: {self.label or 'nobody'}"


class Retention(TeamOwned):
    """What a team keeps of its checkpoints; what none of the rules keeps is deleted. Without a row nothing is ever deleted."""

    team = models.OneToOneField(Team, models.CASCADE, related_name="retention")
    keep_last = models.PositiveIntegerField(default=2)  # of each run
    keep_best = models.PositiveIntegerField(default=1)  # of each run, by ``metric``
    metric = models.CharField(max_length=200, default="heldout/reward")
    smallest = models.BooleanField(default=False)  # whether the smallest value is the best
    keep_every = models.PositiveIntegerField(default=0)  # steps that are a multiple of it; 0: none for that
    keep_final = models.BooleanField(default=True)  # final policies
    after_hours = models.PositiveIntegerField(default=24)  # younger checkpoints are left alone
    active = models.BooleanField(default=False)
    changed_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    changed_at = models.DateTimeField(auto_now=True)
    looked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"retention of {self.team}"


class Removal(TeamOwned):
    """A checkpoint that is to be deleted, was, or was taken back. The checkpoint's row stays, so that everything that names it still can."""

    checkpoint = models.OneToOneField(Checkpoint, models.CASCADE, related_name="removal")
    team = models.ForeignKey(Team, models.CASCADE, related_name="removals")
    by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")  # None: the team's rules
    asked_at = models.DateTimeField(auto_now_add=True)
    due_at = models.DateTimeField()  # until then it can be taken back
    deleted_at = models.DateTimeField(null=True)
    kept_at = models.DateTimeField(null=True)  # somebody took it back; the rules leave it alone from then on
    bytes = models.BigIntegerField(default=0)  # what it freed
    problem = models.CharField(max_length=300, blank=True)  # why it is still there although it is due

    class Meta:
        indexes = [models.Index(fields=["due_at"], condition=models.Q(deleted_at=None, kept_at=None), name="removal_due")]

    def __str__(self) -> str:
        return f"removal of {self.checkpoint}"


class HubToken(TeamOwned):
    """The team's key to a model hub. Written, replaced, removed; never shown."""

    team = models.OneToOneField(Team, models.CASCADE, related_name="hub_token")
    sealed = models.BinaryField()
    ending = models.CharField(max_length=4)  # its last characters
    stored_by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    stored_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"hub token …{self.ending}"


class PushState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNDER_WAY = (PushState.QUEUED, PushState.RUNNING)
_UNDER_WAY = models.Q(state__in=["queued", "running"])


class Push(TeamOwned):
    """A copy of a checkpoint to a hub repository."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="pushes")
    checkpoint = models.ForeignKey(Checkpoint, models.CASCADE, related_name="pushes")
    repository = models.CharField(max_length=200)
    private = models.BooleanField(default=True)
    state = models.CharField(max_length=9, choices=PushState.choices, default=PushState.QUEUED)
    done = models.BigIntegerField(default=0)  # bytes
    total = models.BigIntegerField(default=0)
    doing = models.CharField(max_length=200, blank=True)
    problem = models.CharField(max_length=500, blank=True)
    url = models.CharField(max_length=300, blank=True)  # of the commit
    cancel = models.BooleanField(default=False)
    by = models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
    asked_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(null=True)  # the task's last heartbeat
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["checkpoint", "repository"], condition=_UNDER_WAY, name="one_push_at_once")]
        indexes = [models.Index(fields=["state", "beat_at"], name="push_under_way")]
        ordering: ClassVar[list[str]] = ["-id"]

    def __str__(self) -> str:
        return f"{self.checkpoint} to {self.repository}"
