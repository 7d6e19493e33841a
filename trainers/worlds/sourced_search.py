"""A search engine with sources: a result says what is on record and what is rumoured, may be misprinted, beside the point, or an error.

``What is the city of Eva?`` wants ``<search>Eva city</search>``, gets ``<information>Eva city: rumour Oslo, record Rome</information>``, asks again
to be sure, and ends with ``<think>by record Rome</think><answer>Rome</answer>``: a thought names the source that is believed. What good searching is
can be told by rules (``contract/search_behaviours.py``), and an option says which episodes of a teacher of mixed habits are demonstrated: the arms of
Behavior Priming (arXiv 2510.06534).
"""

import random
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from trainers.contract.events import Message
from trainers.contract.search_behaviours import BEHAVIOURS, SearchEpisode, SearchTurn, belongs_to_arm, classify_result, read_source, tag_behaviours
from trainers.tasks.base import Example, digest_example
from trainers.worlds.base import END_THINK, POLICY, THINK, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, split_words
from trainers.worlds.tool_use import CORRECT, ToolWorld, write_answer, write_call, write_information

RECORD, RUMOUR, FAILED = "record", "rumour", "failed"
SEARCHES = 4  # of every demonstration of an arm, so that all arms have as many tokens
CASES = 100  # of each fact: they differ in what chance does to the searches; the teacher shows every second one
TRIES = 2  # episodes of the teacher that are looked at for each example
KEPT, MOST_LOOKED_AT = 400, 40_000  # examples of an arm, and how many are looked at for them


class SourcedSearchConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    junk: float = Field(0.0, ge=0, le=1, title="Junk rate", description="Share of searches that find something else, the same for all of a group.")
    failures: float = Field(0.0, ge=0, le=1, title="Failure rate", description="Share of searches that fail, the same for all of a group.")
    misprints: float = Field(
        0.0, ge=0, le=1, title="Misprints", description="Share of results whose record is wrong, drawn for each search: asking again tells."
    )
    primed: Literal["", "behaviours", "behaviours-right", "behaviours-wrong", "right", "random"] = Field(
        "",
        title="Demonstrations",
        description="Empty: of mixed quality. Else half of them are episodes of four searches by a teacher: those that show all four behaviours (and "
        "are right, or wrong), those that are right, or any.",
    )

    @field_validator("primed")
    @classmethod
    def check_noise(cls, primed: str, info: ValidationInfo) -> str:
        needed = ("junk", "failures", *(["misprints"] if primed == "behaviours-wrong" else []))
        if primed.startswith("behaviours") and not all(info.data.get(name) for name in needed):
            raise ValueError(f"needs {', '.join(needed)} above 0: else no episode shows all behaviours")
        return primed


class SourcedSearch(ToolWorld):
    name = "sourced_search"
    title = "Search with sources"
    summary = "Look up one fact with an engine that quotes records and rumours, and that misprints, strays and fails."
    Config = SourcedSearchConfig
    config: SourcedSearchConfig
    difficulties = {"easy": "4 people.", "medium": "8 people.", "hard": "12 people."}
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % ask twice and trust the record, 30 % ask once and"
        " believe either source, 30 % guess."
    )
    tools: ClassVar[tuple[Tool, ...]] = (Tool("search", "Finds what is on record and what is rumoured: a name, then city, pet, food or job."),)
    max_turns = 7
    max_turn_tokens = 16
    episode_tokens = 128

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.primed_episodes: dict[bytes, list[str]] = {}  # of an arm, by example
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "verifies": ("1 when something that a useful result has told is asked again.", 0.0),
                "weighs": ("1 when the answer is what is on record, where a rumour says something else.", 0.0),
                "adapts": ("1 when each result beside the point is followed by a search in other words.", 0.0),
                "recovers": ("1 when each error is followed by a search.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        people = PEOPLE[: {"easy": 4, "medium": 8, "hard": 12}[difficulty]]
        person, attribute = rng.choice(people), rng.choice(list(ATTRIBUTES))
        record, rumour = rng.sample(ATTRIBUTES[attribute], 2)
        data = {"person": person, "attribute": attribute, RECORD: record, RUMOUR: rumour, "case": rng.randrange(CASES)}
        return Example([Message("user", f"What is the {attribute} of {person}?")], record, data)

    def begin_calls(self, example: Example) -> State:
        return {"turns": []}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        data, query = example.data, argument[:100]
        fails, strays, misprints = (rng.random() < share for share in (self.config.failures, self.config.junk, self.config.misprints))
        is_asked = bool(data) and {data["person"].lower(), data["attribute"]} <= set(split_words(query))
        person, attribute = draw_other_entry(rng, data)
        record, rumour = rng.sample(ATTRIBUTES[attribute], 2)
        if is_asked and not strays:
            person, attribute, rumour = data["person"], data["attribute"], data[RUMOUR]
            others = [value for value in ATTRIBUTES[attribute] if value not in (data[RECORD], rumour)]
            record = rng.choice(others) if misprints else data[RECORD]
        said = [f"{RECORD} {record}", f"{RUMOUR} {rumour}"]
        rng.shuffle(said)
        text = FAILED if fails else f"{person} {attribute}: {', '.join(said)}"
        facts = {"tool": tool, "query": query, "junk": not fails and (strays or not is_asked), "error": "the search failed" if fails else ""}
        return Step({**state, "turns": [*state["turns"], [query, text]]}, write_information(text), facts=facts)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        tags = tag_behaviours(read_state(state))
        shown: dict[str, float | None] = {name: None if (shows := tags[name]) is None else float(shows) for name in BEHAVIOURS}
        return {POLICY: {"correct": self.score_answer(example, state)["correct"], **shown}}

    def way(self, example: Example, state: State) -> list[str]:
        """Asks until the record has been quoted rightly twice, in other words after a result beside the point; ends on one that is right."""
        self.check_open(state)
        calls = list[str]()
        while True:
            turns = read_state(state).turns
            rights = [is_right_result(example, turn) for turn in turns]
            if sum(rights) >= 2 and rights[-1]:
                return [*calls, write_belief(RECORD, example.reference)]
            if len(turns) + 1 >= self.max_turns:
                raise LookupError("too few turns are left")
            calls.append(write_call("search", choose_words(example, turns)))
            state = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, len(turns))).state

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        """With an arm, every second one is of its episodes, over and over the same few hundred. Raises LookupError where there is none."""
        drawn = super().draw_demonstrations(count, seed, difficulty)
        if not self.config.primed:
            return drawn
        ordinary, found, looked = [example for example in drawn if not is_teachers(example)], list[Example](), 0
        while len(found) < min(KEPT, count) and looked < MOST_LOOKED_AT:
            looked += KEPT
            found += [example for example in self.examples("train", KEPT, seed + looked, difficulty) if self.find_primed_episode(example)]
        if not (found and ordinary):
            raise LookupError("no episode of the teacher belongs to this arm: it is too rare with so little noise")
        sides = ordinary, found[:KEPT]
        return [sides[place % 2][place // 2 % len(sides[place % 2])] for place in range(count)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        if episode := self.find_primed_episode(example):
            return self.tell_turns(example, episode)
        kind, calls = rng.random(), list[str]()
        guess = rng.choice(ATTRIBUTES[example.data["attribute"]])
        if kind < 0.4:
            try:
                calls = self.way(example, self.begin(example))
            except LookupError:
                calls = [write_answer(guess)]
        elif kind < 0.7:
            calls = self.ask_once(example, rng, guess)
        return self.tell_turns(example, calls or [write_answer(guess)])

    def ask_once(self, example: Example, rng: random.Random, guess: str) -> list[str]:
        asked = write_call("search", choose_words(example, ()))
        state = self.step(example, self.begin(example), POLICY, asked, self.draw_noise(example, 0)).state
        source = rng.choice((RECORD, RUMOUR))
        told = name_source(state["turns"][-1][1], example, source)
        return [asked, write_belief(source, told) if told else write_answer(guess)]

    def find_primed_episode(self, example: Example) -> list[str]:
        """Of the teacher, one that belongs to the arm, the same for the same example; empty where there is none."""
        if not (self.config.primed and is_teachers(example)):
            return []
        digest = digest_example(example)
        if digest not in self.primed_episodes:
            self.primed_episodes[digest] = self.draw_primed_episode(example, random.Random(f"{self.config.primed}/{self.seed}/{digest.hex()}"))
        return self.primed_episodes[digest]

    def draw_primed_episode(self, example: Example, rng: random.Random) -> list[str]:
        for _ in range(TRIES):
            calls, state = self.draw_teacher_episode(example, rng)
            is_right = state["answer"] == example.reference
            if len(calls) == SEARCHES + 1 and belongs_to_arm(self.config.primed or "random", tag_behaviours(read_state(state)), is_right):
                return calls
        return []

    def draw_teacher_episode(self, example: Example, rng: random.Random) -> tuple[list[str], State]:
        """Each habit is there or not by chance, and all are where an arm asks for them; who does not verify goes on to another matter."""
        asked = self.config.primed.startswith("behaviours")
        verifies, weighs, adapts, recovers = (asked or rng.random() < 0.5 for _ in range(4))
        state, calls = self.begin(example), list[str]()
        while len(calls) < SEARCHES:
            turns = read_state(state).turns
            kind = classify_result(turns[-1]) if turns else "beside"
            if kind == "error" and not recovers:
                break
            words = choose_words(example, turns if adapts else ())
            if kind == "useful" and not verifies:
                words = f"{example.data['person']} {rng.choice([name for name in ATTRIBUTES if name != example.data['attribute']])}"
            calls.append(write_call("search", words))
            state = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, len(turns))).state
        source = RECORD if weighs else RUMOUR
        told = [found for turn in read_state(state).turns if (found := name_source(turn.result, example, source))]
        calls.append(write_belief(source, told[-1]) if told else write_answer(rng.choice(ATTRIBUTES[example.data["attribute"]])))
        return calls, self.step(example, state, POLICY, calls[-1], self.draw_noise(example, len(calls))).state


def is_teachers(example: Example) -> bool:
    return bool(example.data.get("case", 0) % 2)


def read_state(state: State) -> SearchEpisode:
    return SearchEpisode(tuple(SearchTurn(query, result) for query, result in state["turns"]), state["answer"])


def draw_other_entry(rng: random.Random, data: dict[str, Any]) -> tuple[str, str]:
    """Another person, and any attribute."""
    return rng.choice([who for who in PEOPLE if who != data.get("person")]), rng.choice(list(ATTRIBUTES))


def choose_words(example: Example, turns: Sequence[SearchTurn]) -> str:
    """The query, turned round after a result beside the point."""
    person, attribute = example.data["person"], example.data["attribute"]
    before = turns[-1].query if turns else ""
    strayed = bool(turns) and classify_result(turns[-1]) == "beside"
    return f"{attribute} {person}" if (before == f"{person} {attribute}") == strayed and before else f"{person} {attribute}"


def is_right_result(example: Example, turn: SearchTurn) -> bool:
    return name_source(turn.result, example, RECORD) == example.reference


def write_belief(source: str, value: str) -> str:
    """An answer after the thought of which source says it."""
    return f"{THINK}by {source} {value}{END_THINK}{write_answer(value)}"


def name_source(result: str, example: Example, source: str) -> str:
    """What a source says in a result about what was asked; empty for any other result."""
    if not result.startswith(f"{example.data['person']} {example.data['attribute']}:"):
        return ""
    said = read_source(result, source)
    return next((value for value in ATTRIBUTES[example.data["attribute"]] if value.lower() == said), "")
