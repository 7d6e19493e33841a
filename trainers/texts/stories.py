"""The stories of the word problems as text: reading one, and telling it again in simpler or in other words with the same answer."""

import random
import re
from dataclasses import dataclass, replace

from trainers.tasks.mini_gsm import GAINS, ITEMS, LOSSES, NAMES

BEGINNING = re.compile(r"(\w+) has (\d{1,6}) (\w+)")
CHANGE = re.compile(rf"({'|'.join((*GAINS, *LOSSES))}) (\d{{1,6}})")
QUESTION = ". How many?"


@dataclass(frozen=True)
class Story:
    name: str
    start: int
    item: str
    changes: tuple[int, ...]
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        changes = [f"{verb} {abs(change)}" for verb, change in zip(self.verbs, self.changes, strict=True)]
        return ", ".join([f"{self.name} has {self.start} {self.item}", *changes]) + QUESTION

    @property
    def equations(self) -> list[str]:
        total, lines = self.start, []
        for change in self.changes:
            lines.append(f"{total}{change:+d}={total + change}")
            total += change
        return lines


def parse_story(text: str) -> Story | None:
    """The story that a prompt tells; None for any other text."""
    if not text.endswith(QUESTION):
        return None
    beginning, *rest = text.removesuffix(QUESTION).split(", ")
    begins, changes = BEGINNING.fullmatch(beginning), [CHANGE.fullmatch(part) for part in rest]
    if begins is None or not all(changes):
        return None
    told = [(match[1], int(match[2])) for match in changes if match]
    signed = tuple(-size if verb in LOSSES else size for verb, size in told)
    return Story(begins[1], int(begins[2]), begins[3], signed, tuple(verb for verb, _ in told))


def simplify_story(story: Story) -> Story | None:
    """With the first change already made; None when there is only one."""
    if len(story.changes) < 2 or story.start + story.changes[0] < 0:
        return None
    return replace(story, start=story.start + story.changes[0], changes=story.changes[1:], verbs=story.verbs[1:])


def retell_story(story: Story, rng: random.Random) -> Story:
    """The same numbers about another person, other things and in other words."""
    verbs = [draw_other_word(GAINS if change >= 0 else LOSSES, verb, rng) for verb, change in zip(story.verbs, story.changes, strict=True)]
    return replace(story, name=draw_other_word(NAMES, story.name, rng), item=draw_other_word(ITEMS, story.item, rng), verbs=tuple(verbs))


def draw_other_word(words: tuple[str, ...], own: str, rng: random.Random) -> str:
    return rng.choice([word for word in words if word != own])
