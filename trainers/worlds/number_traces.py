"""Number paths in one text: the search stands in the thought, with dead ends and ways back, and the answer says the moves.

``From 4 to 11 in 2 moves.`` wants ``<think>4 +3 7 back 0 4 *2 8 +3 11</think><answer>*2 +3</answer>``. The rules are those of ``rewrites``; here no
world answers in between, so that the policy works the numbers out itself and only the answer is checked. What the demonstrations are like is an
option: how many dead ends each has, whether what they say is right, or whether they are answers alone. The first policy is trained on them, so that
a run is supervised training on such traces and then reinforcement: the question of arXiv 2505.24273 and 2504.07052.
"""

import random
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.contract.search_traces import Back, Contents, Move, NoTraceError, Trace, draw_solution, draw_trace
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, make_rewards
from trainers.worlds.rewrites import DEPTHS, MOST, PROBLEM, RULES, find_way
from trainers.worlds.tool_use import ToolWorld, write_answer

LONGEST = 2  # wrong moves of a dead end
BACK = "back"
BACK_WORD = re.compile(rf"\b{BACK}\b")
Place = tuple[int, int]  # the number, and how many moves are left


class NumberTracesConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    dead_ends: int = Field(
        1, ge=0, le=4, title="Dead ends", description="Wrong branches of each demonstrated search; fewer where a problem has fewer."
    )
    varied: bool = Field(
        False, title="Varied", description="Each demonstration has from none to that many dead ends, so that right ones differ in length."
    )
    contents: Contents = Field(
        "right",
        title="Contents",
        description="Demonstrations are right, or end in one more dead end with a wrong answer, or say what a right one says in a random order.",
    )
    answers_only: bool = Field(False, title="Answers alone", description="Demonstrations are right answers without a search.")
    moves: int = Field(0, ge=0, le=4, title="Moves", description="Of the shortest way, in every problem; 0: as the difficulty says.")


@dataclass(frozen=True)
class NumberPath:
    """The way from a number to another one in ``moves`` moves, as a search problem."""

    number: int
    goal: int
    moves: int

    @property
    def start(self) -> Place:
        return self.number, self.moves

    def list_moves(self, state: Place) -> list[Move]:
        number, left = state
        reached = {rule: rewrite(number) for rule, rewrite in RULES.items()} if left else {}
        return [Move(f"{rule} {result}", (result, left - 1)) for rule, result in reached.items() if 0 <= result <= MOST]

    def is_goal(self, state: Place) -> bool:
        return state[0] == self.goal

    def can_reach_goal(self, state: Place) -> bool:
        return can_reach_number(state[0], self.goal, state[1])


@lru_cache(maxsize=100_000)
def can_reach_number(number: int, goal: int, moves: int) -> bool:
    return find_way(number, goal, moves) is not None


class NumberTraces(ToolWorld):
    name = "number_traces"
    title = "Number paths in one text"
    summary = "Find the moves from one number to another; the policy writes its search, dead ends included, before it answers."
    Config = NumberTracesConfig
    config: NumberTracesConfig
    difficulties = {"easy": "1 or 2 moves.", "medium": "2 or 3 moves.", "hard": "3 or 4 moves."}
    demonstrations = (
        "Of mixed quality only where an option says so: searches of a solver with so many dead ends, each with a way back, and a right answer; with"
        " other options answers alone, wrong ends, or steps in a random order."
    )
    max_turns = 1
    max_turn_tokens = 112
    episode_tokens = 112

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when the moves of the answer lead to the goal.", 1.0),
                "format": ("1 when the text is a thought, or none, and an answer of moves.", 0.0),
                "searches": ("1 when the thought goes back at least once.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        moves = self.config.moves or rng.randint(*DEPTHS[difficulty])
        while True:
            start, goal = rng.randint(1, MOST), rng.randint(1, MOST)
            if can_reach_number(start, goal, moves) and not can_reach_number(start, goal, moves - 1):
                return make_path_example(start, goal, moves)

    def begin_calls(self, example: Example) -> State:
        return {"backs": 0}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        made = super().step(example, state, seat, text, rng)
        if made.state["answer"] is None:
            return made
        backs = len(BACK_WORD.findall(text))
        return replace(made, state={**made.state, "backs": backs}, reward=float(is_solution(example, made.state["answer"])), facts={"backs": backs})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        answer = state["answer"]
        is_answer = answer is not None and not state["errors"]
        return {
            POLICY: {
                "correct": float(is_answer and is_solution(example, answer)),
                "format": float(is_answer and bool(answer.split()) and all(rule in RULES for rule in answer.split())),
                "searches": float(is_answer and state["backs"] > 0),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        return [self.write_text(read_path(example), "right", self.draw_noise(example, 0))]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        path = read_path(example)
        if self.config.answers_only:
            return self.tell_turns(example, [write_path_answer(draw_solution(path, rng))])
        return self.tell_turns(example, [self.write_text(path, self.config.contents, rng)])

    def write_text(self, path: NumberPath, contents: Contents, rng: random.Random) -> str:
        """A search with its answer, with as many dead ends as there are, ``dead_ends`` at most."""
        most = rng.randint(0, self.config.dead_ends) if self.config.varied else self.config.dead_ends
        for count in range(most, -1, -1):
            try:
                trace = draw_trace(path, count, contents, LONGEST, rng)
            except NoTraceError:
                continue
            return write_path_trace(path, trace)
        raise LookupError("there is no such trace")

    def read(self, text: str) -> Example | None:
        """``From 4 to 11 in 2 moves.``, where there is a way in so many moves and none in fewer."""
        found = PROBLEM.fullmatch(text) if text.isascii() else None
        if found is None:
            return None
        start, goal, moves = map(int, found.groups())
        way = find_way(start, goal, moves) if moves <= max(DEPTHS["hard"]) else None
        return make_path_example(start, goal, moves) if way and len(way) == moves else None


def make_path_example(start: int, goal: int, moves: int) -> Example:
    way = find_way(start, goal, moves)
    assert way is not None
    return Example([Message("user", f"From {start} to {goal} in {moves} moves.")], " ".join(way), {"start": start, "goal": goal, "moves": moves})


def read_path(example: Example) -> NumberPath:
    """Raises LookupError for an example that does not say where it leads."""
    return NumberPath(example.data["start"], example.data["goal"], example.data["moves"])


def is_solution(example: Example, answer: str) -> bool:
    """Whether the answer is moves, no more than are allowed, that lead to the goal; no number on the way is out of range."""
    rules = answer.split()
    if "goal" not in example.data or not 0 < len(rules) <= example.data["moves"]:
        return False
    number = example.data["start"]
    for rule in rules:
        if rule not in RULES:
            return False
        number = RULES[rule](number)
        if not 0 <= number <= MOST:
            return False
    return bool(number == example.data["goal"])


def write_path_trace(path: NumberPath, trace: Trace) -> str:
    """``<think>4 +3 7 back 0 4 *2 8 +3 11</think><answer>*2 +3</answer>``."""
    visits = [f"{BACK} {visit.step} {visit.state[0]}" if isinstance(visit, Back) else visit.text for visit in trace.visits]
    return f"<think>{' '.join([str(path.number), *visits])}</think>{write_path_answer(trace.answer)}"


def write_path_answer(moves: list[Move]) -> str:
    return write_answer(" ".join(move.text.split()[0] for move in moves))
