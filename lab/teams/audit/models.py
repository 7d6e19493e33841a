"""The audit log: who did what to which object from where. Rows are only ever added; the database refuses to change or delete one."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector, SearchVectorField
from django.db import models
from django.db.models import Value
from django.db.models.expressions import Func

from lab.teams.accounts.models import Team, User
from lab.teams.accounts.scope import TeamOwned

SIGNS = "@._-/#:+"  # parts of a word no more: an address or a run's number is found by any of its words


def build_word_expression(field: str) -> Func:
    return Func(field, Value(SIGNS), Value(" " * len(SIGNS)), function="translate", output_field=models.TextField())


class RequestChannel(models.TextChoices):
    BROWSER = "browser"
    API = "api", "API"
    WORKER = "worker"
    COMMAND = "command"


class Entry(TeamOwned):
    """One act. Names are kept as they were, so that an entry stays readable when what it names is gone."""

    at = models.DateTimeField(auto_now_add=True)
    team = models.ForeignKey(Team, models.DO_NOTHING, null=True, db_constraint=False, related_name="+")
    actor = models.ForeignKey(User, models.DO_NOTHING, null=True, db_constraint=False, related_name="+")
    who = models.CharField(max_length=254, blank=True)  # the actor's e-mail address, or "service token NAME"
    via = models.CharField(max_length=8, choices=RequestChannel.choices)
    token = models.CharField(max_length=16, blank=True)  # prefix of the token that was used
    action = models.CharField(max_length=40)  # one of lab.teams.audit.actions.ACTIONS
    kind = models.CharField(max_length=40, blank=True)  # what sort of object: "run", "queue", …
    object_id = models.CharField(max_length=64, blank=True)
    label = models.CharField(max_length=200, blank=True)  # what it was called
    address = models.GenericIPAddressField(null=True)
    agent = models.CharField(max_length=200, blank=True)
    details = models.JSONField(default=dict)  # never a secret
    words = models.GeneratedField(  # what the search looks through; not loaded with the entry
        expression=SearchVector(build_word_expression("who"), build_word_expression("label"), build_word_expression("object_id"), config="simple"),
        output_field=SearchVectorField(),
        db_persist=True,
    )

    class Meta:
        verbose_name_plural = "entries of the audit log"
        indexes = [
            models.Index(fields=["team", "-id"], name="audit_newest"),
            models.Index(fields=["team", "action", "-id"], name="audit_action"),
            models.Index(fields=["team", "actor", "-id"], name="audit_actor"),
            models.Index(fields=["team", "kind", "object_id", "-id"], name="audit_object"),
            models.Index(fields=["team", "via", "-id"], name="audit_via"),
            models.Index(fields=["team", "address", "-id"], name="audit_address"),
            models.Index(fields=["team", "at"], name="audit_when"),
            GinIndex(fields=["words"], name="audit_words"),
        ]

    def __str__(self) -> str:
        return f"{self.who} {self.action} {self.label}"


class ChainLink(models.Model):
    """An entry's place in the hash chain (``lab.teams.audit.chain``). Only ever added to, like the entries."""

    number = models.BigIntegerField(primary_key=True)  # 1, 2, 3 … without a gap
    entry_id = models.BigIntegerField(unique=True)
    digest = models.BinaryField()  # SHA-256 over the digest before it and the entry

    class Meta:
        verbose_name_plural = "links of the audit log's chain"

    def __str__(self) -> str:
        return f"link {self.number} to entry {self.entry_id}"


class Unchained(models.Model):
    """An entry that waits for its link. The database adds the row with the entry; linking takes it away."""

    entry_id = models.BigIntegerField(primary_key=True)

    class Meta:
        verbose_name_plural = "entries that wait for their link"

    def __str__(self) -> str:
        return f"entry {self.entry_id}"
