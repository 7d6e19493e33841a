"""The world ``search`` with a verdict on every result: the turn after a search begins with ``<judge>yes</judge>`` or ``<judge>no</judge>``.

Yes is right where one of the sentences found is needed for the answer. A turn after a search without a verdict ends the episode. The shape of the
episode is ReSeek's (arXiv 2510.00568).
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import field_validator

from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, make_rewards
from trainers.worlds.search import Search
from trainers.worlds.search_options import SearchConfig

YES, NO = "yes", "no"
OPENING, CLOSING = "<judge>", "</judge>"
WRONG = 0.4  # share of the demonstrated verdicts that are turned round


class JudgedSearchConfig(SearchConfig):
    @field_validator("alone")
    @classmethod
    def check_results(cls, alone: bool) -> bool:
        if alone:
            raise ValueError("there is no result of an engine to judge")
        return alone


class JudgedSearch(Search):
    Config = JudgedSearchConfig
    name = "judged_search"
    title = "Search with verdicts"
    summary = "Answer a chained question with a search engine, and say after every search whether it found anything that the answer needs."
    demonstrations = (
        "Of mixed quality by design: 30 % follow every hop and are right, 30 % skip the relations and look up the wrong person, 40 % answer without"
        " searching; of the verdicts, 40 % are wrong."
    )
    max_turn_tokens = 16
    episode_tokens = 120

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards |= make_rewards(self, {"verdict": ("Share of the verdicts on search results that are right.", 0.0)})

    @property
    def tags(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().tags, "judge")

    def begin_calls(self, example: Example) -> State:
        return {**super().begin_calls(example), "pending": None, "verdicts": []}  # pending: the right verdict on the last search

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        if state["pending"] is None:
            return super().step(example, state, seat, text, rng)
        verdict, rest = split_verdict(text)
        if not verdict:
            return Step({**state, "errors": state["errors"] + 1}, done=True, facts={"error": "no verdict on the last search"})
        judged = {**state, "pending": None, "verdicts": [*state["verdicts"], [verdict, state["pending"]]]}
        made = super().step(example, judged, seat, rest, rng)
        return replace(made, facts={**made.facts, "verdict": verdict, "right verdict": state["pending"]})

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        made = super().call_tool(example, state, tool, argument, rng)
        is_useful = bool(set(made.facts.get("hits", ())) & set(example.data.get("evidence", ())))
        return replace(made, state={**made.state, "pending": YES if is_useful else NO})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        scores = super().outcome(example, state)[POLICY]
        agreeing = [verdict == right for verdict, right in state["verdicts"]]
        return {POLICY: {**scores, "verdict": sum(agreeing) / len(agreeing) if agreeing else None}}

    def begin_turn(self, state: State) -> str:
        return "" if state["pending"] is None else write_verdict(state["pending"])

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        return [turn_verdict_round(said) if said.seat and rng.random() < WRONG else said for said in super().turns(example, rng, seat)]

    def tell_turns(self, example: Example, turns: Sequence[str]) -> list[Said]:
        """A turn after a search gets the right verdict where it has none."""
        state, told = self.begin(example), list[str]()
        for number, text in enumerate(turns):
            told.append(text if split_verdict(text)[0] else self.begin_turn(state) + text)
            state = self.step(example, state, POLICY, told[-1], self.draw_noise(example, number)).state
        return super().tell_turns(example, told)


def write_verdict(verdict: str) -> str:
    return f"{OPENING}{verdict}{CLOSING}"


def split_verdict(text: str) -> tuple[str, str]:
    """(verdict, the rest of the turn); no verdict where the turn does not begin with one."""
    for verdict in (YES, NO):
        if text.startswith(write_verdict(verdict)):
            return verdict, text[len(write_verdict(verdict)) :]
    return "", text


def turn_verdict_round(said: Said) -> Said:
    verdict, rest = split_verdict(said.text)
    return replace(said, text=write_verdict(NO if verdict == YES else YES) + rest) if verdict else said
