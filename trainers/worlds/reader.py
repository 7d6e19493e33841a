"""A text that is read chunk by chunk with a memory of a few words: what is not kept has to be found again, and what has changed must be replaced.

``What is Mia's city in the end? Part 1 of 2: The city is Rome. The food is soup.`` wants ``<memory>city Rome</memory>``, gets
``<information>Part 2 of 2: The pet is owl. The city is Lima.</information>``, goes on with ``<memory>city Lima</memory>`` and ends with
``<answer>Lima</answer>``.
With the option ``fold`` every chunk is asked in a context of its own that holds the question and the memory alone. Methods that begin such contexts
themselves (SUPO, Accordion-Thinking, ReMemR1) want the option ``windows``: demonstrations in such contexts. Looking for an old memory by its words is
ReMemR1's; there what is asked comes last (option ``late``).
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, split_words
from trainers.worlds.tool_use import CORRECT, FORMAT, write_answer, write_call, write_information
from trainers.worlds.windows import WindowWorld

T = TypeVar("T")

TOPICS = list(ATTRIBUTES)
CHUNKS = {"easy": 2, "medium": 3, "hard": 3}
LINES = 2  # of a chunk, on different topics
LEVELS = (1, 2, 4)  # lines of a piece, of a text that is cut at several levels
END, NOTHING = "That is all.", "nothing"


class ReaderConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    chunks: int = Field(0, ge=0, le=5, title="Chunks", description="Parts of the text; 0 = as many as the difficulty says.")
    topics: int = Field(4, ge=LINES, le=len(TOPICS), title="Topics", description="What the text is about.")
    words: int = Field(6, ge=2, le=12, title="Memory", description="Words that the memory holds; what is written beyond them is cut.")
    late: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Late topic",
        description="Share of texts that say what the question means at the end alone: only old memories help then.",
    )
    fold: bool = Field(
        False,
        title="Fold",
        description="Every chunk is asked in a context of its own, with the memory alone, by methods that fold; others play it in one context.",
    )
    windows: float = Field(
        0.0,
        ge=0,
        le=1,
        title="Demonstrations in windows",
        description="Share of the demonstrations whose turns are each told in a context with the memory alone: for methods that begin such contexts.",
    )
    numbered: bool = Field(
        False,
        title="Numbered lines",
        description="Every line of the text has a number, and most demonstrations quote numbers beside what they keep, not always the right ones.",
    )
    levels: bool = Field(
        False,
        title="Levels of view",
        description="Every text is cut at one of three levels, into many short or few long chunks: of one, two or four lines.",
    )

    @field_validator("levels")
    @classmethod
    def check_topic(cls, levels: bool, info: ValidationInfo) -> bool:
        if levels and info.data.get("late"):
            raise ValueError("goes without late topics: of a long chunk the memory does not hold all")
        return levels


class Reader(WindowWorld):
    name = "reader"
    title = "Reading with a memory"
    summary = "Read a text chunk by chunk, keep in a few words what the question needs, and answer at the end."
    Config = ReaderConfig
    config: ReaderConfig
    difficulties = {
        "easy": "Two chunks.",
        "medium": "Three chunks.",
        "hard": "Three chunks, and the text says what it is that the question means.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % keep what the question needs and answer at the end,"
        " 30 % answer with what the first chunk says, 30 % keep something else and answer with it."
    )
    tools = (
        Tool("memory", "Replaces the memory by these words and reads the next chunk."),
        Tool("recall", "Finds the earlier memory that fits these words best."),
    )
    max_turns = 8
    max_turn_tokens = 20
    episode_tokens = 112

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        if self.config.numbered or self.config.levels:
            self.episode_tokens = self.episode_tokens + 32  # type: ignore[misc]  # of this object alone
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "kept": ("Share of the words the answer needs that the memory, or what was recalled, held in the end.", 0.3),
                "read": ("Share of the chunks that were read before the answer.", 0.0),
                "format": FORMAT,
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        topics, count = TOPICS[: self.config.topics], self.config.chunks or CHUNKS[difficulty]
        late, who = rng.random() < self.config.late, rng.choice(PEOPLE[:6])
        while True:
            lines = [[[topic, rng.choice(ATTRIBUTES[topic])] for topic in rng.sample(topics, LINES)] for _ in range(count)]
            target = rng.choice(topics)
            values = [value for chunk in lines for topic, value in chunk if topic == target]
            if values:
                break
        if self.config.levels:
            lines = regroup_lines(lines, rng.choice(LEVELS))
        chunks, question = write_chunks(lines, self.config.numbered), f"What is {who}'s {target} in the end?"
        if late or difficulty == "hard":
            question, chunks = f"What is it of {who} in the end?", tell_topic(chunks, target, late)
        data = {"question": question, "chunks": chunks, "lines": lines, "target": target, "needed": [target, values[-1]], "late": late}
        return Example([Message("user", f"{question} {write_part(chunks, 0)}")], values[-1], data)

    def recut_example(self, example: Example, size: int) -> Example:
        """The same question about the same text, in chunks of ``size`` lines."""
        data, lines = example.data, regroup_lines(example.data["lines"], size)
        chunks = write_chunks(lines, self.config.numbered)
        if write_topic(data["target"]) in " ".join(data["chunks"]):
            chunks = tell_topic(chunks, data["target"], data["late"])
        prompt = [Message("user", f"{data['question']} {write_part(chunks, 0)}")]
        return Example(prompt, example.reference, {**data, "chunks": chunks, "lines": lines})

    def begin_calls(self, example: Example) -> State:
        return {"read": 1, "memory": "", "memories": [], "recalled": "", "calls": 0}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        before = self.rate_words(example, [state["memory"], state["recalled"]])
        facts: dict[str, Any] = {"tool": tool, "query": argument[:100]}
        after = {**state, "calls": state["calls"] + 1}
        if tool == "recall":
            after["recalled"] = find_memory(argument, state["memories"])
            text = after["recalled"] or NOTHING
        else:
            words = argument[:200].split()
            if len(words) > self.config.words:
                facts["error"] = "the memory was cut"
            after |= {"memory": " ".join(words[: self.config.words]), "recalled": "", "read": state["read"] + 1}
            after["memories"] = [*state["memories"], after["memory"]][-self.max_turns :]
            chunks = example.data.get("chunks", [])
            text = write_part(chunks, state["read"]) if state["read"] < len(chunks) else END
        held = self.rate_words(example, [after["memory"], after["recalled"]])
        facts |= {"held": held, "evidence": ["held"] if held > before else []}
        fresh = self.write_window(example, after) if self.config.fold else None
        return Step(after, write_information(text), reward=held - before, facts=facts, fresh=fresh)

    @property
    def windows(self) -> float:
        return self.config.windows

    def write_window(self, example: Example, state: State) -> list[Message]:
        """The question, the memory, what was recalled and the chunk that is being read."""
        part = write_part(example.data.get("chunks", []), state["read"] - 1)
        recalled = f"Recalled: {state['recalled']}. " if state["recalled"] else ""
        return [Message("user", f"{example.data.get('question', '')} <memory>{state['memory']}</memory> {recalled}{part}")]

    def rate_words(self, example: Example, held: Iterable[str]) -> float:
        """Share of the needed words that are among those held; 0 for an example that does not say which are needed."""
        needed, words = example.data.get("needed", []), " ".join(held).split()
        return sum(word in words for word in needed) / len(needed) if needed else 0.0

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        chunks = example.data.get("chunks")
        return {
            POLICY: {
                **self.score_answer(example, state),
                "kept": self.rate_words(example, [state["memory"], state["recalled"]]) if chunks else None,
                "read": min(1.0, state["read"] / len(chunks)) if chunks else None,
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        """Keeps what is asked, or all of the chunk where nobody can know yet what that is; recalls what it has let go."""
        self.check_open(state)
        count = len(example.data["chunks"])
        calls = [write_call("memory", self.write_note(example, number)) for number in range(state["read"] - 1, count)]
        notes = [*state["memories"], *(self.write_note(example, number) for number in range(state["read"] - 1, count))]
        if self.rate_words(example, notes[-1:]) < 1 and self.rate_words(example, [find_memory(example.data["target"], notes)]) == 1:
            calls.append(write_call("recall", example.data["target"]))
        if state["calls"] + len(calls) + 1 > self.max_turns:
            raise LookupError("too few turns are left")
        return [*calls, write_answer(example.reference)]

    def write_note(self, example: Example, number: int, quotes: bool = True) -> str:
        """What is worth keeping once chunk ``number`` (from 0) has been read; with the numbers of its lines, where they have some."""
        data, lines = example.data, list_lines(example)
        end = sum(map(len, data["lines"][: number + 1]))
        kept = lines[end - len(data["lines"][number]) : end]
        if not data["late"]:
            kept = [line for line in lines[:end] if line.topic == data["target"]][-1:]
        return " ".join(line.write_note(quotes and self.config.numbered) for line in kept) or data["target"]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        data, kind = example.data, rng.random()
        if kind < 0.4:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        if kind < 0.7:
            first = [value for topic, value in data["lines"][0] if topic == data["target"]] or [rng.choice(ATTRIBUTES[data["target"]])]
            return self.tell_turns(example, [write_call("memory", self.write_note(example, 0, quotes=False)), write_answer(first[0])])
        kept = [rng.choice(chunk) for chunk in data["lines"]]
        notes = [" ".join([*line, *self.draw_quote(example, number, rng)]) for number, line in enumerate(kept)]
        calls = [write_call("memory", note) for note in notes]
        return self.tell_turns(example, [*calls, write_answer(rng.choice(kept)[1])])

    def draw_quote(self, example: Example, number: int, rng: random.Random) -> list[str]:
        """The number of any line read once chunk ``number`` has been, where lines have numbers."""
        return [str(rng.randint(1, sum(map(len, example.data["lines"][: number + 1]))))] if self.config.numbered else []


@dataclass(frozen=True)
class Line:
    """``number``: in the whole text, from 1; ``chunk``: that it stands in, from 0."""

    number: int
    chunk: int
    topic: str
    value: str

    def write_note(self, is_quoted: bool) -> str:
        return f"{self.topic} {self.value} {self.number}" if is_quoted else f"{self.topic} {self.value}"


def list_lines(example: Example) -> list[Line]:
    """The lines of the text in their order; none for an example that does not say them."""
    every = [(place, *line) for place, chunk in enumerate(example.data.get("lines", ())) for line in chunk]
    return [Line(number, *line) for number, line in enumerate(every, 1)]


def write_chunks(lines: Sequence[Sequence[Sequence[str]]], is_numbered: bool) -> list[str]:
    numbers = iter(range(1, 1 + sum(map(len, lines))))
    said = [[f"The {topic} is {value}." for topic, value in chunk] for chunk in lines]
    return [" ".join(f"{next(numbers)}: {line}" if is_numbered else line for line in chunk) for chunk in said]


def regroup_lines(lines: Sequence[Sequence[T]], size: int) -> list[list[T]]:
    """The same lines, ``size`` in a chunk; the last one may have fewer."""
    flat = [line for chunk in lines for line in chunk]
    return [flat[start : start + size] for start in range(0, len(flat), size)]


def write_topic(target: str) -> str:
    return f"It is about the {target}."


def tell_topic(chunks: Sequence[str], target: str, is_late: bool) -> list[str]:
    """The chunks with the words that say what the question means: at the end, or at the beginning."""
    told = write_topic(target)
    return [*chunks[:-1], f"{chunks[-1]} {told}"] if is_late else [f"{told} {chunks[0]}", *chunks[1:]]


def write_part(chunks: Sequence[str], number: int) -> str:
    return f"Part {number + 1} of {len(chunks)}: {chunks[number]}" if number < len(chunks) else END


def find_memory(query: str, memories: Sequence[str]) -> str:
    """The one whose words fit best by the cosine of TF-IDF, the latest of equals; empty where no word fits."""
    bags = [split_words(memory) for memory in memories]

    def weigh(words: list[str]) -> dict[str, float]:
        return {word: words.count(word) * math.log(1 + len(bags) / max(1, sum(word in bag for bag in bags))) for word in dict.fromkeys(words)}

    wanted, best, found = weigh(split_words(query[:200])), 0.0, ""
    for memory, bag in zip(memories, bags, strict=True):
        weights = weigh(bag)
        length = math.hypot(*weights.values()) * math.hypot(*wanted.values())
        cosine = sum(weight * weights.get(word, 0.0) for word, weight in wanted.items()) / length if length else 0.0
        if cosine >= best and cosine > 0:
            best, found = cosine, memory
    return found
