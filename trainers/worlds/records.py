"""Records of patients as named columns, of which a few decide whether somebody is ill and the others are noise.

``mood high, pulse high, iron mid, sugar low, shoe low, sleep high. Ill?`` wants the columns that decide it here, the weightiest first, and the
answer: ``<features>pulse, sugar, sleep</features><answer>no</answer>``. A column is weighed by how far its value is from the middle. Which columns
count is nowhere said. With the option ``leak`` a column of noise agrees with the answer in prompts for training, and in held-out ones it does not:
whoever relies on it pays for that there. The lists of features are EAG-RL's (arXiv 2508.13579), whose records are of real patients.
"""

import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example, Split, digest_example
from trainers.worlds.base import MAX_TURN_CHARACTERS, POLICY, Said, State, Step, make_rewards
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer

WEIGHTS = {"pulse": 3.1, "iron": -2.4, "sugar": 1.9, "sleep": -1.3}  # of the columns that count; no two sums of them are near 0 by chance
NOISE = ("mood", "heat", "steps", "height", "shoe", "voice")
LEAKING = NOISE[0]
COLUMNS = (*WEIGHTS, *NOISE)
LEVELS = {-1: "low", 0: "mid", 1: "high"}
NOISY = {"easy": 2, "medium": 4, "hard": 6}  # columns of noise
CLEAR = 0.3  # least distance of a record's sum from 0
MOST_CITED = 3
YES, NO = "yes", "no"
FEATURES, END_FEATURES = "<features>", "</features>"


class RecordsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    leak: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Leak",
        description="Share of the prompts for training in which a column of noise is made to agree with the answer.",
    )


class Records(ToolWorld):
    name = "records"
    title = "Records with columns that count"
    summary = "Say of a record of named columns which of them decide and what follows; the other columns are noise."
    Config = RecordsConfig
    config: RecordsConfig
    difficulties = {name: f"{len(WEIGHTS)} columns that count and {count} of noise." for name, count in NOISY.items()}
    demonstrations = (
        "Of mixed quality by design: 30 % name the columns that decide and are right, 35 % name columns at random, 35 % name none; of these two, six"
        " answers of ten are right."
    )
    max_turns = 1
    max_turn_tokens = 28
    episode_tokens = 32

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        cited = ("What the columns named and those that decide share, by their union.", 0.0)
        self.rewards = make_rewards(self, {"correct": CORRECT, "cited": cited, "format": FORMAT})

    @property
    def tags(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().tags, "features")

    def examples(self, split: Split, count: int, seed: int, difficulty: str) -> list[Example]:
        """Records are drawn and divided without the leak, which comes into those for training afterwards."""
        drawn = super().examples(split, count, seed, difficulty)
        return drawn if split == "heldout" or not self.config.leak else [leak_answer(example, self.config.leak) for example in drawn]

    def example(self, rng: random.Random, difficulty: str) -> Example:
        columns = rng.sample([*WEIGHTS, *NOISE[: NOISY[difficulty]]], len(WEIGHTS) + NOISY[difficulty])
        while True:
            values = {column: rng.choice(list(LEVELS)) for column in columns}
            if abs(sum_weights(values)) >= CLEAR:
                return make_record(values)

    def begin_calls(self, example: Example) -> State:
        return {"cited": []}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        cited, rest = split_features(text)
        if cited is None:
            return Step({**state, "errors": state["errors"] + 1}, done=True, facts={"error": "no list of features before all else"})
        return super().step(example, {**state, "cited": cited}, seat, rest, rng)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        deciding = example.data.get("deciding")
        scores = self.score_answer(example, state)
        return {POLICY: {**scores, "cited": None if deciding is None else measure_overlap(state["cited"], deciding)}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "deciding" not in example.data:
            raise LookupError("the example does not say which columns decide")
        return [write_features(example.data["deciding"]) + write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind = rng.random()
        if kind < 0.30:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        cited = rng.sample(list(example.data["values"]), rng.randint(1, MOST_CITED)) if kind < 0.65 else []
        is_right = rng.random() < 0.6
        answer = example.reference if is_right else NO if example.reference == YES else YES
        return self.tell_turns(example, [write_features(cited) + write_answer(answer)])


def sum_weights(values: dict[str, int]) -> float:
    return sum(WEIGHTS.get(column, 0.0) * value for column, value in values.items())


def list_deciding(values: dict[str, int]) -> list[str]:
    """The columns that weigh most in a record, the weightiest first: up to three, none of them in the middle."""
    weights = {column: abs(WEIGHTS.get(column, 0.0) * value) for column, value in values.items()}
    return sorted((column for column, weight in weights.items() if weight), key=lambda column: -weights[column])[:MOST_CITED]


def make_record(values: dict[str, int]) -> Example:
    """The question about a record, with its columns in their order."""
    label = YES if sum_weights(values) > 0 else NO
    told = ", ".join(f"{column} {LEVELS[value]}" for column, value in values.items())
    data = {"values": values, "columns": list(values), "deciding": list_deciding(values)}
    return Example([Message("user", f"{told}. Ill?")], label, data)


def set_column(example: Example, column: str, value: int) -> Example:
    """The same record with another value in a column of noise."""
    return make_record({**{one: example.data["values"][one] for one in example.data["columns"]}, column: value})


def leak_answer(example: Example, share: float) -> Example:
    """The leaking column agrees with the answer in ``share`` of the records; which ones depends on the record alone."""
    if random.Random(digest_example(example)).random() >= share:
        return example
    return set_column(example, LEAKING, 1 if example.reference == YES else -1)


def write_features(columns: list[str]) -> str:
    return f"{FEATURES}{', '.join(columns)}{END_FEATURES}"


def split_features(text: str) -> tuple[list[str] | None, str]:
    """(columns named, each once, what follows the list); None for a text that does not begin with a list."""
    text = text.strip()
    inside, closed, rest = text.removeprefix(FEATURES).partition(END_FEATURES)
    if not text.startswith(FEATURES) or not closed or "<" in inside or len(text) > MAX_TURN_CHARACTERS:
        return None, text
    named = [part.strip() for part in inside.split(",") if part.strip()]
    if any(name not in COLUMNS for name in named):
        return None, text
    return list(dict.fromkeys(named)), rest


def measure_overlap(named: list[str], wanted: list[str]) -> float:
    """Jaccard's index of two sets; 1 where both are empty."""
    both = set(named) | set(wanted)
    return len(set(named) & set(wanted)) / len(both) if both else 1.0
