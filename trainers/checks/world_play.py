"""An episode of a world as a person plays it, turn by turn: run in a child that the lab forks for every turn. No torch."""

import json
import random
from collections.abc import Iterator
from typing import Any

from trainers.contract.problems import SpecError
from trainers.contract.spec import TaskChoice
from trainers.tasks.base import Example
from trainers.tasks.registry import UnknownTask, load_chosen_task
from trainers.worlds.base import World, replay_episode


def answer_world_play(data: bytes) -> Iterator[str]:
    """One line of JSON: the episode so far, or ``problems``.

    ``data``: world, difficulty, example (a number from 1), text (the episode so far, the world's words included), turn (what is added now).
    """
    asked = json.loads(data)
    try:
        found = play_turn(asked)
    except SpecError as error:
        found = {"problems": error.as_json()}
    except UnknownTask as error:
        found = {"problems": [{"field": "world", "message": str(error)}]}
    yield json.dumps(found, allow_nan=False)


def play_turn(asked: dict[str, Any]) -> dict[str, Any]:
    """Raises SpecError and UnknownTask."""
    world = load_chosen_task(TaskChoice(name=asked["world"], difficulty=asked["difficulty"]))
    if not isinstance(world, World):
        raise UnknownTask(f"{asked['world']} is no world: it has no turns to play")
    example = world.examples("train", asked["example"], 0, asked["difficulty"])[-1]
    text = asked["text"] + asked["turn"]
    replay = replay_episode(world, example, text)
    if asked["turn"] and not replay.rest and not replay.done:
        text += replay.turns[-1].step.text
    over = replay.done or bool(replay.rest) or len(replay.turns) >= world.max_turns
    scores = [{"name": name, "summary": one.summary, "score": one.function(text, example)} for name, one in world.rewards.items()]
    shown = [said.text for said in world.turns(example, random.Random(asked["example"])) if said.seat]
    return {
        "problems": [],
        "prompt": [[message.role, message.content] for message in example.prompt],
        "turns": [{"text": turn.text, "answer": "" if turn.step.done else turn.step.text, "facts": turn.step.facts} for turn in replay.turns],
        "text": text,
        "over": over,
        "left": max(0, world.max_turns - len(replay.turns)),
        "scores": scores if over else [],
        "gold": tell_gold(world, example),
        "demonstration": tell_turns(world, example, shown),
    }


def tell_gold(world: World, example: Example) -> list[list[str]]:
    try:
        return tell_turns(world, example, world.way(example, world.begin(example)))
    except LookupError:
        return []


def tell_turns(world: World, example: Example, turns: list[str]) -> list[list[str]]:
    """(seat, text) of each piece of an episode; the world's own words have an empty seat."""
    return [[said.seat, said.text] for said in world.tell_turns(example, turns)]
