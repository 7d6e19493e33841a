"""People and the teams they work in. Every other row of the lab belongs to a team."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
from django.db import models

from lab.teams.accounts.scope import TeamOwned


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        if not email:
            raise ValueError("an account needs an e-mail address")
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractUser):
    username = None  # type: ignore[assignment]
    email = models.EmailField("e-mail address", unique=True)
    seen_at = models.DateTimeField(null=True)  # last request in a browser or with a token of theirs, to the minute; sessions.remember_seen

    class Meta(AbstractUser.Meta):
        abstract = False
        constraints = [models.UniqueConstraint(models.functions.Lower("email"), name="one_account_per_address")]

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects = UserManager()  # type: ignore[misc,assignment]

    def __str__(self) -> str:
        return self.get_full_name() or self.email


class Team(models.Model):
    name = models.CharField(max_length=80)
    slug = models.SlugField(unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    requires_mfa = models.BooleanField(default=False)  # members without a second factor reach nothing of the team but setting one up
    join_requests = models.BooleanField(default=False)  # people with an account may ask to be let in
    newest_deleted_run = models.PositiveIntegerField(default=0, db_default=0)  # its number and those before it are given to no other run

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    OWNER = "owner"
    ADMIN = "admin"
    RESEARCHER = "researcher"
    ANNOTATOR = "annotator"
    VIEWER = "viewer"


class Membership(models.Model):
    team = models.ForeignKey(Team, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role.choices, default=Role.RESEARCHER)
    active = models.BooleanField(default=True)  # False: deactivated; what the person did stays, under their name
    deactivated_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    columns = models.JSONField(default=dict, db_default={})  # table → the columns the person chose there (``table_columns``)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team} ({self.role})"


class Project(TeamOwned):
    """Groups runs, queues and datasets of a team; none of them has to be in one."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="projects")
    name = models.CharField(max_length=80)
    about = models.CharField(max_length=300, blank=True)
    archived_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(models.F("team"), models.functions.Lower("name"), name="project_name_in_team")]

    def __str__(self) -> str:
        return self.name


class Invitation(TeamOwned):
    """An invitation of one address into one team: single use, expiring; only the hashes of its links' tokens are stored.

    Two links open it: the one the inviter sees, and the one that is mailed, which proves that who opens it reads the address's mail.
    """

    team = models.ForeignKey(Team, models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=12, choices=Role.choices, default=Role.RESEARCHER)
    queues = models.JSONField(
        default=list, db_default=[]
    )  # ids of labelling queues they are assigned to on joining (lab.teams.people.queue_assignment)
    digest = models.CharField(max_length=64, unique=True)  # of the link the inviter sees
    mailed_digest = models.CharField(max_length=64, unique=True, null=True)  # of the mailed one; none without a mail server
    invited_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    accepted_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"invitation of {self.email} into {self.team}"


class JoinRequest(TeamOwned):
    """Somebody with an account asks to be let into a team that accepts such requests."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="join_asks")
    user = models.ForeignKey(User, models.CASCADE, related_name="+")
    message = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    answered_at = models.DateTimeField(null=True)
    answered_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    accepted = models.BooleanField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "user"], condition=models.Q(answered_at=None), name="one_open_join_request")]

    def __str__(self) -> str:
        return f"{self.user} asks to join {self.team}"


class ApiToken(TeamOwned):
    """An access token of the API: of a person in one team, or (``user`` None) a service token of the team. Only the hash of the secret is stored."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="tokens")
    user = models.ForeignKey(User, models.CASCADE, null=True, related_name="tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=16, unique=True)  # the beginning of the token, which pages and logs show
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the whole token
    scopes = models.JSONField(default=list)  # names of permissions; a request needs the scope and, for a person's token, the role
    role = models.CharField(max_length=12, choices=Role.choices, blank=True)  # of a service token
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    last_used_from = models.GenericIPAddressField(null=True)
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["team", "-created_at"], name="token_newest")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class SetupLink(models.Model):
    """The first-start link (see ``setup_link``): only the hash of its token is stored."""

    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"set-up link until {self.expires_at:%Y-%m-%d %H:%M}"
