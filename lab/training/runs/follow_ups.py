"""What is to follow a run once it is launched, for rooms that launching may not know: it travels with the launch form, signed, until then.

A room registers its kind in ``KINDS``. A form that is launched twice launches once, so what follows it is begun once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from django.core import signing

from lab.lib.registry import Registry
from lab.teams.accounts.models import Team, User
from lab.training.runs.forms import LaunchForm
from lab.training.runs.models import Run
from trainers.contract.spec import Problem

SIGNED, WANTED = "follows", "follow"  # inputs of the form: what was asked for, and the box that can be unticked
SALT = "lab.runs.following"  # of signed values, wherever this module lies
Wish = Mapping[str, Any]


class Kind(Protocol):
    title: str

    def words(self, team: Team, wish: Wish) -> str:
        """What will be done, for the box on the form."""

    def problems(self, form: LaunchForm, wish: Wish) -> list[Problem]:
        """What in the form keeps it from being done."""

    def begin(self, run: Run, user: User, wish: Wish) -> None:
        """Called in the transaction of the launch."""


KINDS: Registry[Kind] = Registry("kind of what follows a run")


@dataclass(frozen=True)
class Following:
    kind: Kind
    wish: Wish
    wanted: bool
    words: str


def build_wish_inputs(kind: str, team: Team, wish: Wish) -> dict[str, str]:
    """The initial values of a form that the wish goes with."""
    return {SIGNED: signing.dumps({"kind": kind, "team": team.pk, "wish": dict(wish)}, salt=SALT), WANTED: "on"}


def load_following(form: LaunchForm) -> Following | None:
    """What the form carries; None where it carries nothing, or nothing of this team that can be read."""
    try:
        signed = signing.loads(form.values[SIGNED], salt=SALT)
    except signing.BadSignature:
        return None
    if signed["team"] != form.team.pk or signed["kind"] not in KINDS:
        return None
    kind = KINDS[signed["kind"]]
    return Following(kind, signed["wish"], form.values[WANTED], kind.words(form.team, signed["wish"]))


def list_following_problems(form: LaunchForm) -> list[Problem]:
    if not form.values[WANTED]:
        return []
    following = load_following(form)
    if following is None:
        message, fix = "the follow-up of this run can no longer be read", "go back to where you opened this form, or launch without it"
        return [Problem("", None, message, fix)]
    return following.kind.problems(form, following.wish)


def begin_following(form: LaunchForm, run: Run, user: User) -> None:
    following = load_following(form)
    if following is not None and following.wanted:
        following.kind.begin(run, user, following.wish)
