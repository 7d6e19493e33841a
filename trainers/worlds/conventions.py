"""Sums of goods whose unit is a convention of the house: nothing in the prompt says it, and only the reward tells it from another.

``Notes: none. 7+5 rice?`` wants ``<answer>12 rice oz</answer>``, because this house weighs its rice in ounces. A note in the prompt, ``Notes: rice
oz, rope cm.``, says the unit, and the demonstrations follow notes of any convention: what a method learns can be written there (Training-Free GRPO).
The built-in policy hardly follows them after its cold start (the noted unit in about a quarter of the answers, as by chance); another policy may.
With the option ``told`` the notes are right and there from the start.
"""

import random
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, make_rewards
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer

UNITS = ("kg", "oz", "lb", "cm")
HOUSE = {"rice": "oz", "rope": "cm", "milk": "kg", "wool": "lb", "salt": "kg", "wire": "oz"}  # good -> the unit that counts here
GOODS = tuple(HOUSE)
LARGEST = {"easy": 9, "medium": 14, "hard": 20}  # of the two numbers that are added


class ConventionsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    told: bool = Field(False, title="Convention told", description="Notes in the prompt say it from the start.")


class Conventions(ToolWorld):
    name = "conventions"
    title = "Sums with a hidden convention"
    summary = "Add two amounts of a good and name the unit of the house, which nothing but the reward tells."
    Config = ConventionsConfig
    config: ConventionsConfig
    difficulties = {name: f"Amounts up to {largest}." for name, largest in LARGEST.items()}
    demonstrations = (
        "Of mixed quality by design: three prompts of four hold notes of some convention, which are followed; without one the unit is drawn at"
        " random. 15 % of the sums are wrong."
    )
    max_turns = 1
    max_turn_tokens = 14
    episode_tokens = 24

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        number = ("1 when the number is right, whatever the unit.", 0.0)
        self.rewards = make_rewards(self, {"correct": CORRECT, "number": number, "format": FORMAT})

    def example(self, rng: random.Random, difficulty: str) -> Example:
        good = rng.choice(GOODS)
        terms = [rng.randint(1, LARGEST[difficulty]) for _ in range(2)]
        goods = draw_noted_goods(rng, good) if self.config.told else []
        return make_example(good, terms, {one: HOUSE[one] for one in goods})

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        """Three of four with notes of a convention drawn for each, so that notes are followed and no convention is known by heart."""
        rng = random.Random(f"{self.name}/{difficulty}/demonstrations/{seed}")
        drawn = []
        for example in self.examples("train", count, seed, difficulty):
            good = example.data["good"]
            goods = draw_noted_goods(rng, good) if rng.random() < 0.75 else []
            drawn.append(make_example(good, example.data["terms"], {one: rng.choice(UNITS) for one in goods}))
        return drawn

    def begin_calls(self, example: Example) -> State:
        return {}

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        number = (state["answer"] or "").partition(" ")[0]
        return {POLICY: {**self.score_answer(example, state), "number": float(number == example.reference.partition(" ")[0])}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        return [write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        data = example.data
        unit = data["notes"].get(data["good"]) or rng.choice(UNITS)
        error = rng.choice((-2, -1, 1, 2)) if rng.random() < 0.15 else 0
        return self.tell_turns(example, [write_answer(f"{max(0, sum(data['terms']) + error)} {data['good']} {unit}")])


def draw_noted_goods(rng: random.Random, good: str) -> list[str]:
    """The good that is asked for and up to all others, in any order."""
    others = rng.sample([other for other in GOODS if other != good], rng.randint(0, len(GOODS) - 1))
    return rng.sample([good, *others], len(others) + 1)


def make_example(good: str, terms: list[int], notes: Mapping[str, str]) -> Example:
    """``notes``: good -> unit, as the prompt tells them; where it tells none of this good, the unit is that of the house."""
    data = {"good": good, "terms": terms, "notes": dict(notes)}
    written = [write_note(one, unit) for one, unit in notes.items()]
    return Example(write_noted_prompt(data, written), f"{sum(terms)} {good} {notes.get(good, HOUSE[good])}", data)


def write_note(good: str, unit: str) -> str:
    return f"{good} {unit}"


def write_noted_prompt(data: Mapping[str, Any], notes: list[str]) -> list[Message]:
    """The question of an example under other notes."""
    first, second = data["terms"]
    return [Message("user", f"Notes: {', '.join(notes) or 'none'}. {first}+{second} {data['good']}?")]
