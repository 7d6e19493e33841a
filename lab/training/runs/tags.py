"""Tags of runs: short words of a team's own, read from what somebody typed. A run holds its own; they are not the tags of rollouts."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import F, Func

from lab.lib.refusals import InputRefusal, Problem
from lab.teams.accounts.models import Team
from lab.training.runs.models import TAG_LENGTH, Run

MOST_TAGS = 20  # on one run


def clean_tags(words: Iterable[str]) -> list[str]:
    """Each once, whatever its case, in the order given, without what is empty; a comma ends a tag. Raises InputRefusal."""
    found: dict[str, str] = {}
    for word in ",".join(words).split(","):
        tag = " ".join(word.replace("\0", "\u2400").split())
        if len(tag) > TAG_LENGTH:
            fix = "Shorten it, or put a comma between two tags."
            raise InputRefusal([Problem("tags", f"The tag “{tag[:40]}…” has {len(tag)} characters. Use at most {TAG_LENGTH}.", fix)])
        if tag:
            found.setdefault(tag.casefold(), tag)
    if len(found) > MOST_TAGS:
        raise InputRefusal([Problem("tags", f"{len(found)} tags are too many for a run. Use at most {MOST_TAGS}.")])
    return list(found.values())


def clean_tag(word: str) -> str:
    """One tag. Raises InputRefusal."""
    tags = clean_tags([word])
    if len(tags) != 1:
        raise InputRefusal([Problem("tag", "Enter one tag, without commas." if tags else "Enter a tag.")])
    return tags[0]


def list_team_tags(team: Team) -> list[str]:
    """Every tag of the team's runs, archived ones included, by name."""
    words = Run.objects.of(team).exclude(tags=[]).order_by().values_list(Func(F("tags"), function="unnest", set_returning=True), flat=True)
    return sorted(words.distinct(), key=str.casefold)


def spell_as_team(team: Team, tags: Iterable[str]) -> list[str]:
    """``tags`` as the team has written them before: "Loop" and "loop" are one tag."""
    known = {tag.casefold(): tag for tag in list_team_tags(team)}
    return [known.get(tag.casefold(), tag) for tag in tags]
