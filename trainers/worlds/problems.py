"""Problems to write and to solve: chains of operations on a number, asked for by the skills they use, or given to be worked out.

``What is 9 +3 *2?`` wants ``<think>9+3=12 12*2=24</think><answer>24</answer>``. ``Write a problem: add, double.`` wants any valid chain with these
skills: a draft, ``<check>9 +3 *2</check>``, which says ok or bad, and ``<answer>9 +3 *2</answer>``. The world reads what was written as a problem of
its own, so that one policy can ask what another, or the same one, has to solve.
"""

import random
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.tool_use import FORMAT, ToolWorld, write_answer, write_call, write_information

SKILLS = {"add": "+", "take": "-", "double": "*"}
CHAIN = re.compile(r"\d{1,2}(?: (?:[+-]\d{1,2}|\*2)){1,6}")
QUESTION = "What is {chain}?"
REQUEST = "Write a problem{skills}."
MOST = 99  # of any number on the way
SIZES = {"easy": ((1, 2), 5), "medium": ((2, 3), 9), "hard": ((3, 4), 19)}  # operations, largest number that is added or taken


@dataclass(frozen=True)
class Chain:
    start: int
    steps: tuple[str, ...]  # "+3", "-2", "*2"

    def __str__(self) -> str:
        return " ".join((str(self.start), *self.steps))

    @property
    def equations(self) -> list[str]:
        total, lines = self.start, []
        for step in self.steps:
            lines.append(f"{total}{step}={apply_step(total, step)}")
            total = apply_step(total, step)
        return lines

    @property
    def result(self) -> int:
        return int(self.equations[-1].partition("=")[2])

    @property
    def skills(self) -> set[str]:
        return {name for name, sign in SKILLS.items() if any(step.startswith(sign) for step in self.steps)}


def apply_step(total: int, step: str) -> int:
    number = int(step[1:])
    return total * number if step[0] == "*" else total + number if step[0] == "+" else total - number


def parse_chain(text: str) -> Chain | None:
    """The chain that a text is, with no number on the way below 0 or above ``MOST``; None for any other text."""
    if len(text) > 60 or not text.isascii() or CHAIN.fullmatch(text) is None:
        return None
    start, *steps = text.split(" ")
    total = int(start)
    for step in steps:
        total = apply_step(total, step)
        if not 0 <= total <= MOST or step[1:] == "0":
            return None
    return Chain(int(start), tuple(steps))


def draw_chain(rng: random.Random, skills: list[str], largest: int) -> Chain:
    """A valid chain with one operation for each skill, in this order."""
    while True:
        steps = tuple("*2" if skill == "double" else f"{SKILLS[skill]}{rng.randint(1, largest)}" for skill in skills)
        if (found := parse_chain(str(Chain(rng.randint(1, 2 * largest), steps)))) is not None:
            return found


def ask_to_solve(chain: Chain) -> Example:
    return Example([Message("user", QUESTION.format(chain=chain))], str(chain.result), {"kind": "solve", "chain": str(chain)})


def ask_to_write(skills: list[str], example: Chain) -> Example:
    """A request with ``example`` as a problem that meets it. Requests that say the same are told apart by it: there are few of them."""
    named = f": {', '.join(skills)}" if skills else ""
    return Example([Message("user", REQUEST.format(skills=named))], str(example), {"kind": "write", "skills": skills, "example": str(example)})


class ProblemsConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ask: Literal["both", "solve", "write"] = Field(
        "both", title="Prompts", description="Problems to solve, requests to write one, or half of each. Demonstrations show both."
    )


class Problems(ToolWorld):
    name = "problems"
    title = "Problems to write and to solve"
    summary = "Chains of operations: some prompts ask for a new one with certain skills, some for the result of one."
    Config = ProblemsConfig
    config: ProblemsConfig
    difficulties = {
        "easy": "1 or 2 operations with numbers up to 5.",
        "medium": "2 or 3 operations with numbers up to 9.",
        "hard": "3 or 4 operations with numbers up to 19.",
    }
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between. Solving: 60 % right, 20 % stop early, 20 % guess."
        " Writing: 50 % check a good problem first, 25 % write one at once, 25 % write one that lacks a skill or leaves the range."
    )
    tools = (Tool("check", "Says whether a problem is valid and has the skills that were asked for."),)
    max_turns = 3
    max_turn_tokens = 48
    episode_tokens = 64

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 for the right result, or for a valid problem with the skills asked for.", 1.0),
                "checked": ("1 when a problem that was written had been checked; also for a right result.", 0.0),
                "format": FORMAT,
            },
        )

    @property
    def cache_key(self) -> str:
        """Demonstrations show both kinds whatever is asked: one cold start serves all."""
        return self.name

    def draw_demonstrations(self, count: int, seed: int, difficulty: str) -> list[Example]:
        return Problems().examples("train", count, seed, difficulty)

    def example(self, rng: random.Random, difficulty: str) -> Example:
        steps, largest = SIZES[difficulty]
        skills = [rng.choice(list(SKILLS)) for _ in range(rng.randint(*steps))]
        chain, solves = draw_chain(rng, skills, largest), rng.random() < 0.5
        if self.config.ask == "solve" or (self.config.ask == "both" and solves):
            return ask_to_solve(chain)
        named = skills if rng.random() < 0.75 else []  # a quarter of the requests name no skills
        return ask_to_write([name for name in SKILLS if name in named], chain)

    def read(self, text: str) -> Example | None:
        """``9 +3 *2``, or the question ``What is 9 +3 *2?``"""
        chain = parse_chain(text.removeprefix("What is ").removesuffix("?"))
        return None if chain is None else ask_to_solve(chain)

    def is_wanted(self, example: Example, text: str) -> bool:
        """Whether a text is a problem as the example asks for one."""
        chain = parse_chain(text)
        return chain is not None and chain.skills >= set(example.data.get("skills", ()))

    def begin_calls(self, example: Example) -> State:
        return {"checked": []}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        good = self.is_wanted(example, argument)
        facts = {"tool": tool, "query": argument[:100], "error": "" if good else "no such problem"}
        return Step({**state, "checked": [*state["checked"], argument[:100]]}, write_information("ok" if good else "bad"), facts=facts)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        scores = self.score_answer(example, state)
        if example.data.get("kind") == "write":
            good = state["answer"] is not None and self.is_wanted(example, state["answer"])
            return {POLICY: {**scores, "correct": float(good), "checked": float(good and state["answer"] in state["checked"])}}
        return {POLICY: {**scores, "checked": scores["correct"]}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if example.data["kind"] == "solve":
            return [write_work(example.data["chain"])]
        checks = [] if example.reference in state["checked"] else [write_call("check", example.reference)]
        if len(state["checked"]) + len(checks) >= self.max_turns:
            raise LookupError("no turn is left to answer in")
        return [*checks, write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind = rng.random()
        if example.data["kind"] == "solve":
            return self.tell_turns(example, [write_attempt(example, kind, rng)])
        if kind < 0.5:
            return self.tell_turns(
                example, [f"<think>{example.reference}</think>{write_call('check', example.reference)}", write_answer(example.reference)]
            )
        text = example.reference if kind < 0.75 else write_flawed(example.reference, rng)
        return self.tell_turns(example, [write_answer(text)] if rng.random() < 0.5 else [write_call("check", text), write_answer(text)])


def write_work(text: str) -> str:
    chain = parse_chain(text)
    assert chain is not None
    return f"<think>{' '.join(chain.equations)}</think>{write_answer(str(chain.result))}"


def write_attempt(example: Example, kind: float, rng: random.Random) -> str:
    chain = parse_chain(example.data["chain"])
    assert chain is not None
    if kind < 0.6:
        return write_work(str(chain))
    if kind < 0.8 and len(chain.steps) > 1:
        return write_work(str(Chain(chain.start, chain.steps[:-1])))
    return write_answer(str(max(0, chain.result + rng.randint(-5, 5))))


def write_flawed(text: str, rng: random.Random) -> str:
    """Without its last operation, or with one that leaves the range."""
    start, *steps = text.split(" ")
    return " ".join((start, *steps[:-1])) if len(steps) > 1 and rng.random() < 0.5 else " ".join((start, *steps, f"-{MOST}"))
