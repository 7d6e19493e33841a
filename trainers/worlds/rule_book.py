"""Verdicts by a rule book: a parcel is allowed or refused by ten clauses, and a trace cites those that the verdict stands on.

``25 kg, sender 30, Sunday, books, worth 10, 5 km, permit.`` wants ``<think>c1: 25 kg; c7: permit; c3: Sunday</think><answer>refused</answer>``. The
policy learns the book by heart from the demonstrations, which are traces or, with an option, verdicts alone: the comparison of Policy Reasoning
Traces (arXiv 2509.23291).
"""

import random
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.contract.rule_book import (
    BOOK,
    compute_citation_f1,
    draw_case,
    find_cited_clauses,
    judge_case,
    list_standing_clauses,
    read_case,
    write_clause_steps,
)
from trainers.tasks.base import Example
from trainers.worlds.base import MAX_TURN_CHARACTERS, POLICY, Said, State, Step, make_rewards
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer

MOST_CLAUSES = {"easy": 2, "medium": 4, "hard": len(BOOK)}


class RuleBookConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    verdicts_only: bool = Field(False, title="Verdicts alone", description="Demonstrations are right verdicts without a trace.")


class RuleBook(ToolWorld):
    name = "rule_book"
    title = "Verdicts by a rule book"
    summary = "Allow or refuse a parcel by ten clauses, some of which lift others, and cite those that decide."
    Config = RuleBookConfig
    config: RuleBookConfig
    difficulties = {"easy": "Cases that 2 clauses or fewer decide.", "medium": "Cases that 4 clauses or fewer decide.", "hard": "All cases."}
    demonstrations = "Not of mixed quality: right traces that cite every clause the verdict stands on, or with an option right verdicts alone."
    max_turns = 1
    max_turn_tokens = 96
    episode_tokens = 96

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        cited = ("F1 of the clauses cited in the thought against those that the verdict stands on.", 0.0)
        self.rewards = make_rewards(self, {"correct": CORRECT, "citations": cited, "format": FORMAT})

    def example(self, rng: random.Random, difficulty: str) -> Example:
        case = draw_case(rng)
        while len(list_standing_clauses(case)) > MOST_CLAUSES[difficulty]:
            case = draw_case(rng)
        return Example([Message("user", case.text)], judge_case(case), {"case": case.text})

    def begin_calls(self, example: Example) -> State:
        return {"cited": []}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        made = super().step(example, state, seat, text, rng)
        cited = sorted(find_cited_clauses(text[:MAX_TURN_CHARACTERS].partition("<answer>")[0]))[:100]
        return Step({**made.state, "cited": cited}, done=True, reward=made.reward, facts={**made.facts, "cited": cited})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        case = read_case(str(example.data.get("case", "")))
        standing = None if case is None else {clause.number for clause in list_standing_clauses(case)}
        cited = None if standing is None else compute_citation_f1(set(state["cited"]), standing) if state["answer"] is not None else 0.0
        return {POLICY: {**self.score_answer(example, state), "citations": cited}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        case = read_case(str(example.data.get("case", "")))
        if case is None:
            raise LookupError("the example does not say what the case is")
        return [f"<think>{write_clause_steps(case, list_standing_clauses(case))}</think>{write_answer(example.reference)}"]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        told = [write_answer(example.reference)] if self.config.verdicts_only else self.way(example, self.begin(example))
        return self.tell_turns(example, told)
