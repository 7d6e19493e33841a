"""A request that is sent again with the same Idempotency-Key acts once; whoever sends it at the same moment waits for the first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from ninja import Header

from lab.edges.api.base import Caller
from lab.edges.api.models import Answered
from lab.edges.api.problems import ApiProblem

KEPT = timedelta(days=1)
LENGTH = 100
OPERATION = 40  # characters that stand for method and path

Key = Annotated[
    str,
    Header(
        "",
        alias="Idempotency-Key",
        max_length=LENGTH,
        pattern=r"^[!-~]*$",
        description="A value that you create for each action, such as a UUID. The same request with the same key within a day is executed once.",
        examples=["5f0c6c9e-6d3f-4a57-8f8b-0a4c8f6f6f10"],
    ),
]


def run_idempotent_action(request: HttpRequest, caller: Caller, key: str, act: Callable[[], list[Any]]) -> tuple[list[Any], bool]:
    """The ids that ``act`` returned for this key, now or the first time; whether it was now. Raises ApiProblem for a key of another request.

    A key counts for one token (and so one team), one method and one whole path: the same key at another object is another act.
    """
    if not key:
        return act(), True
    operation = hashlib.sha256(f"{request.method} {request.path}".encode()).hexdigest()[:OPERATION]
    digest = hashlib.sha256(request.META.get("QUERY_STRING", "").encode() + b"\0" + request.body).hexdigest()
    Answered.across_teams.filter(created_at__lt=timezone.now() - KEPT).delete()
    with transaction.atomic():
        row, fresh = Answered.objects.get_or_create(token=caller.token, operation=operation, key=key, defaults={"digest": digest})
        if not fresh:
            if row.digest != digest:
                raise ApiProblem("conflict", "This Idempotency-Key was used for a different request; create a new one for each action.")
            return list(row.made), False
        keys = act()
        Answered.objects.same_row(row).update(made=[str(key) for key in keys])
    return keys, True
