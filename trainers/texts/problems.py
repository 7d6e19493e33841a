"""Problems that somebody has written: whether a task can read them, what they ask, and how a teacher without a model writes the next one."""

import random
from dataclasses import replace

from trainers.contract.events import Message
from trainers.tasks.base import Example, Task
from trainers.tasks.mini_gsm import GAINS, LOSSES, MiniGsm
from trainers.texts.stories import Story, parse_story
from trainers.worlds.base import World

MOST_CHANGES = 8
MOST_TOTAL = 999
LONGEST = 400  # characters of a problem that is read


def can_read(task: Task) -> bool:
    """Whether the task reads problems at all."""
    return isinstance(task, MiniGsm) or (isinstance(task, World) and type(task).read is not World.read)


def read_problem(task: Task, text: str) -> Example | None:
    """The example that a text asks; None for a text that is no problem of the task. Never raises for a text: it is whatever a policy wrote."""
    if isinstance(task, World):
        return task.read(text)
    return read_word_problem(text) if isinstance(task, MiniGsm) else None


def read_word_problem(text: str) -> Example | None:
    """A story with a running total from 0 to ``MOST_TOTAL`` and changes of 1 or more, ``MOST_CHANGES`` at most."""
    story = parse_story(text) if len(text) <= LONGEST and text.isascii() else None
    if story is None or not 1 <= len(story.changes) <= MOST_CHANGES or 0 in story.changes:
        return None
    totals = list_totals(story)
    if min(totals) < 0 or max(totals) > MOST_TOTAL:
        return None
    return Example([Message("user", text)], str(totals[-1]), {"start": story.start, "changes": list(story.changes)})


def list_totals(story: Story) -> list[int]:
    """What there is at the start and after each change."""
    return [story.start + sum(story.changes[:place]) for place in range(len(story.changes) + 1)]


def change_one_step(story: Story, rng: random.Random) -> Story:
    """Another problem: one change more, one fewer, or one of another size. No total on its way is below 0."""
    kind, place = rng.choice(("more", "fewer", "larger", "smaller")), rng.randrange(len(story.changes))
    changes, verbs = list(story.changes), list(story.verbs)
    if kind == "more" or (kind == "fewer" and len(changes) < 2):
        size = rng.randint(1, 2 * max(map(abs, changes)))
        gains = rng.random() < 0.5
        changes.append(size if gains else -size)
        verbs.append(rng.choice(GAINS if gains else LOSSES))
    elif kind == "fewer":
        del changes[-1], verbs[-1]
    else:
        size = abs(changes[place])
        other = size + rng.randint(1, 3 * size) if kind == "larger" else rng.randint(1, size)
        changes[place] = other if changes[place] > 0 else -other
    made = replace(story, changes=tuple(changes), verbs=tuple(verbs))
    return replace(made, start=made.start + max(0, -min(list_totals(made))))
