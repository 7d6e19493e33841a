"""Writing to the audit log: ``record_audit_entry`` from anywhere; who and from where comes from the request that is being answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db import models, transaction
from django.http import HttpRequest, HttpResponse

from lab.teams.accounts.models import ApiToken, Team, User
from lab.teams.audit.actions import ACTIONS
from lab.teams.audit.chain import link_waiting
from lab.teams.audit.models import Entry, RequestChannel


@dataclass
class ActContext:
    """Who acts and from where. The API sets ``token`` once it knows whose request it is."""

    request: HttpRequest | None = None
    token: ApiToken | None = None
    command: bool = False


_now: ContextVar[ActContext | None] = ContextVar("circumstances of an act", default=None)


class AuditMiddleware:
    """Remembers the request for as long as it is being answered."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        mark = _now.set(ActContext(request))
        try:
            return self.get_response(request)
        finally:
            _now.reset(mark)


@contextmanager
def from_command() -> Iterator[None]:
    """Around what a person does on the command line."""
    mark = _now.set(ActContext(command=True))
    try:
        yield
    finally:
        _now.reset(mark)


def get_circumstances() -> ActContext:
    return _now.get() or ActContext()


def record_audit_entry(
    action: str, target: models.Model | None = None, *, team: Team | None = None, actor: User | None = None, label: str = "", **details: Any
) -> Entry:
    """Adds an entry in the caller's transaction, so that what is rolled back is not logged; it is linked once that is committed.

    Raises KeyError for an unknown action. ``team`` is taken from ``target.team`` when not given. ``details`` must be JSON and hold no secret.
    """
    ACTIONS[action]
    circumstances = get_circumstances()
    person = actor or find_acting_user(circumstances)
    entry = Entry.objects.create(
        team=team or (target if isinstance(target, Team) else getattr(target, "team", None)),
        actor=person,
        who=format_actor_name(person, circumstances.token),
        via=determine_via(circumstances),
        token=circumstances.token.prefix if circumstances.token else "",
        action=action,
        kind=target._meta.model_name or "" if target is not None else "",
        object_id=str(target.pk) if target is not None else "",
        label=escape_unstorable_text(label or (str(target) if target is not None else ""))[:200],
        address=circumstances.request.META.get("REMOTE_ADDR") or None if circumstances.request else None,
        agent=escape_unstorable_text(circumstances.request.headers.get("User-Agent", ""))[:200] if circumstances.request else "",
        details=clean_details(details),
    )
    transaction.on_commit(link_waiting, robust=True)
    return entry


def record_of_person(action: str, person: User | None, *, actor: User | None = None, label: str = "", **details: Any) -> None:
    """An act on an account, which is no team's: an entry of the installation, and one for each team the person is in, so that its admins see it."""
    with transaction.atomic():
        record_audit_entry(action, person, actor=actor, label=label or (person.email if person else ""), **details)
        if person is None:
            return
        for team in Team.objects.filter(memberships__user=person, memberships__active=True).order_by("pk"):
            record_audit_entry(action, person, team=team, actor=actor, label=label or person.email, **details)


def escape_unstorable_text(text: str) -> str:
    """What PostgreSQL cannot hold, made visible: NUL and halves of characters."""
    return text.replace("\0", "\u2400").encode("utf-8", "replace").decode()


def clean_details(value: Any) -> Any:
    """The texts in details, ``escape_unstorable_text``."""
    if isinstance(value, str):
        return escape_unstorable_text(value)
    if isinstance(value, dict):
        return {escape_unstorable_text(str(key)): clean_details(inner) for key, inner in value.items()}
    return [clean_details(inner) for inner in value] if isinstance(value, list | tuple) else value


def find_acting_user(circumstances: ActContext) -> User | None:
    if circumstances.token is not None:
        return circumstances.token.user
    user = getattr(circumstances.request, "user", None)
    return None if user is None or isinstance(user, AnonymousUser) or not user.is_authenticated else user


def format_actor_name(person: User | None, token: ApiToken | None) -> str:
    if person is not None:
        return person.email
    return f"service token {token.name}" if token is not None else ""


def determine_via(circumstances: ActContext) -> RequestChannel:
    if circumstances.token is not None:
        return RequestChannel.API
    if circumstances.command:
        return RequestChannel.COMMAND
    return RequestChannel.BROWSER if circumstances.request is not None else RequestChannel.WORKER
