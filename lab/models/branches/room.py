"""What branches take of the database, for the team's storage."""

from __future__ import annotations

from django.db.models import F, Func, IntegerField, Sum

from lab.models.branches.models import Continuation
from lab.teams.accounts.models import Team
from lab.watching.usage.storage_use import OTHER_ROWS

COLUMNS = ("text", "ids", "lengths", "logprobs", "entropies", "mask")


def register_branch_room() -> None:
    OTHER_ROWS.register("branches", count_branch_bytes)


def count_branch_bytes(team: Team) -> int:
    """Bytes of texts and arrays; what the row itself takes beside them is little."""
    sizes = [Func(F(name), function="octet_length", output_field=IntegerField()) for name in COLUMNS]
    total = sum(sizes[1:], sizes[0])
    return int(Continuation.objects.filter(branch__team=team).aggregate(total=Sum(total))["total"] or 0)
