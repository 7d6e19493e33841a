"""Whom do the clues fit? Questions built from a graph of people, answered with a search engine over its facts as sentences.

``Who has the friend Leo; the city Rome?`` wants ``<search>friend Leo</search>``, gets ``<information>Max's friend is Leo. Ida's friend is Leo.
</information>``, searches ``city Rome`` and ends with the one person whom both fit. With a clue blurred (``a friend with the pet cat``) it takes one
search more. Graph and clues are built by ``question_building.py``.
"""

import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import Fact, Facts
from trainers.worlds.question_building import (
    PERSONS,
    VALUES,
    Clue,
    draw_question,
    find_matches,
    list_evidence,
    list_facts,
    write_question,
)
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

NOTHING = "nothing"
CLUES = {"easy": (2, 0), "medium": (2, 1), "hard": (3, 1)}  # clues, blurred ones


class EntitySearchConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    hits: int = Field(3, ge=1, le=4, title="Hits", description="Sentences that a search finds; each takes some 7 tokens of the context.")
    blurred: float = Field(0.0, ge=0, le=1, title="Blurred share", description="Share of questions with one more clue blurred, where one is left.")


class EntitySearch(ToolWorld):
    name = "entity_search"
    title = "Search for an entity by clues"
    summary = "Find the person whom all clues of a question fit; a clue may describe somebody without a name."
    Config = EntitySearchConfig
    config: EntitySearchConfig
    difficulties = {
        "easy": "A relation and an attribute, both named.",
        "medium": "The same, with the person of the relation described by an attribute.",
        "hard": "Two relations, one of them blurred, and an attribute.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 50 % search for every clue and are right, 30 %"
        " search for the first one and name somebody it fits, 20 % guess."
    )
    tools = (Tool("search", "Finds the sentences that fit the words between the tags best."),)
    max_turns = 6
    max_turn_tokens = 12
    episode_tokens = 200

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "format": FORMAT,
                "evidence": ("Share of the sentences the answer needs that the searches found.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        count, blurs = CLUES[difficulty]
        more = int(self.config.blurred > 0 and rng.random() < self.config.blurred and blurs + 1 < count)
        return self.draw_answerable(count, blurs + more, rng)

    def draw_answerable(self, count: int, blurs: int, rng: random.Random) -> Example:
        """A question of ``count`` clues, ``blurs`` of them blurred, whose sentences the search engine finds."""
        while True:
            example = build_entity_example(*draw_question(count, blurs, rng))
            if self.is_answerable(example):
                return example

    def is_answerable(self, example: Example) -> bool:
        try:
            return bool(self.way(example, self.begin(example)))
        except LookupError:
            return False

    def begin_calls(self, example: Example) -> State:
        return {"queries": 0, "found": []}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        known = Facts(list_facts(example.data.get("entities", {})))
        evidence = [Fact(*row) for row in example.data.get("evidence", [])]
        hits = [known.facts[number] for number in known.engine.search(argument, self.config.hits)]
        fresh = [place for place, fact in enumerate(evidence) if fact in hits and place not in state["found"]]
        after = {**state, "queries": state["queries"] + 1, "found": [*state["found"], *fresh]}
        text = " ".join(fact.sentence for fact in hits) or NOTHING
        return Step(after, write_information(text), facts={"tool": tool, "query": argument[:100], "evidence": fresh})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        evidence = example.data.get("evidence")
        found = len(state["found"]) / len(evidence) if evidence else None
        return {POLICY: {**self.score_answer(example, state), "evidence": found}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        evidence = [Fact(*row) for row in example.data["evidence"]]
        calls = list[str]()
        while missing := [fact for place, fact in enumerate(evidence) if place not in state["found"]]:
            if state["queries"] + 1 >= self.max_turns:
                raise LookupError("too few turns are left")
            calls.append(write_fact_query(missing[0]))
            found = state["found"]
            state = self.step(example, state, POLICY, calls[-1], self.draw_noise(example, state["queries"])).state
            if state["found"] == found:
                raise LookupError("the search engine does not find a sentence that the answer needs")
        return [*calls, write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, guess = rng.random(), rng.choice(PERSONS)
        if kind >= 0.8:
            return self.tell_turns(example, [write_answer(guess)])
        try:
            calls = self.way(example, self.begin(example))
        except LookupError:
            return self.tell_turns(example, [write_answer(guess)])
        if kind < 0.5:
            return self.tell_turns(example, calls)
        fitting = find_matches(example.data["entities"], read_clues(example)[:1])
        return self.tell_turns(example, [calls[0], write_answer(rng.choice(fitting))])


def build_entity_example(entities: dict[str, dict[str, str]], root: str, clues: list[Clue]) -> Example:
    evidence = [[fact.subject, fact.relation, fact.value] for fact in list_evidence(entities, root, clues)]
    data = {
        "entities": entities,
        "clues": [clue.as_row() for clue in clues],
        "evidence": evidence,
        "blurred": sum(bool(clue.attribute) for clue in clues),
    }
    return Example([Message("user", write_question(clues))], root, data)


def read_clues(example: Example) -> list[Clue]:
    return [Clue(*row) for row in example.data["clues"]]


def write_fact_query(fact: Fact) -> str:
    """Words that find a fact: those of an attribute by its value, those of a relation by the person it leads to."""
    words = f"{fact.relation} {fact.value}" if fact.relation in VALUES else f"{fact.relation} is {fact.value}"
    return write_call("search", words)
