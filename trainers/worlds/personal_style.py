"""Word problems for users who want their working in a way of their own, which only their earlier answers show.

``Earlier: 6+3=9 9; 5-1=4 4. Max has 3 apples, gets 3, drops 1. How many?`` is asked for somebody who wants the last line alone, and wants it in named
steps: ``<examine>1 1</examine><pattern>last</pattern><solve>6-1=5</solve><answer>5</answer>``. There are twelve users with one of three rules: no
lines, the last one, all of them. Who asks stands in the example's data and not in the prompt. Named steps and users are TagPR's (arXiv 2509.23140).
"""

import random
from collections.abc import Sequence
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import EQUATION, MiniGsm, list_equations
from trainers.worlds.base import MAX_TURN_CHARACTERS, POLICY, Said, State, Step, make_rewards
from trainers.worlds.facts import PEOPLE
from trainers.worlds.tool_use import CORRECT, ToolWorld, write_answer

STEPS = ("examine", "pattern", "solve")  # the tags that are asked for, in their order
STYLES: dict[str, int | None] = {"short": 0, "last": 1, "all": None}  # lines that a user wants; None: one for each change
USERS = {user: list(STYLES)[number % len(STYLES)] for number, user in enumerate(PEOPLE)}
SHOWN = {"easy": 1, "medium": 2, "hard": 2}  # earlier answers
STORIES = MiniGsm()
NO_LINES = "none"


class PersonalStyle(ToolWorld):
    name = "personal_style"
    title = "Word problems as a user likes them"
    summary = "Find from a user's earlier answers how much working they want, and answer so, in three named steps."
    difficulties = {
        "easy": "One earlier answer; 2 or 3 changes.",
        "medium": "Two earlier answers; 3 or 4 changes.",
        "hard": "Two earlier answers; 3 or 4 changes of larger numbers.",
    }
    demonstrations = (
        "Of mixed quality by design: 40 % find what the user wants and do it, 30 % work in a way drawn at random, 30 % leave out named steps and are"
        " mostly wrong."
    )
    max_turns = 1
    max_turn_tokens = 80
    episode_tokens = 96

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "style": ("1 for as many lines of working as the user wants, 1 / (1 + lines too many or too few) otherwise.", 0.0),
                "tags": ("Share of the named steps that are there, closed and not empty; 0 with a tag that is not asked for.", 0.2),
                "format": ("1 for the named steps in their order, then the answer, and nothing else.", 0.0),
            },
        )

    @property
    def tags(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*super().tags, *STEPS)

    def example(self, rng: random.Random, difficulty: str) -> Example:
        size = "easy" if difficulty == "easy" else "medium"
        asked, user = STORIES.example(rng, size), rng.choice(PEOPLE)
        earlier = [list_equations(STORIES.example(rng, "easy")) for _ in range(SHOWN[difficulty])]
        style = USERS[user]
        shown = "; ".join(" ".join([*keep_lines(lines, style), lines[-1].partition("=")[2]]) for lines in earlier)
        data = {"user": user, "style": style, "lines": list_equations(asked), "earlier": [len(keep_lines(lines, style)) for lines in earlier]}
        return Example([Message("user", f"Earlier: {shown}. {asked.prompt[-1].content}")], asked.reference, data)

    def begin_calls(self, example: Example) -> State:
        return {"tags": 0.0, "formed": False, "lines": None}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        """Any text ends the episode: steps that are missing cost their own reward, not the answer's."""
        text = text[:MAX_TURN_CHARACTERS]
        found = read_steps(text)
        answer = read_closed(text, "answer")
        after = {
            **state,
            "answer": answer,
            "errors": int(answer is None),
            "tags": grade_tags(text),
            "formed": is_in_order(text),
            "lines": count_lines(found["solve"]),
        }
        return Step(after, done=True, reward=float(answer == example.reference))

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        wanted = len(keep_lines(example.data["lines"], example.data["style"])) if "lines" in example.data else None
        style = None if wanted is None else 0.0 if state["lines"] is None else 1 / (1 + abs(state["lines"] - wanted))
        right = float(state["answer"] == example.reference)
        return {POLICY: {"correct": right, "style": style, "tags": state["tags"], "format": float(state["formed"])}}

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "lines" not in example.data:
            raise LookupError("the example does not say how its answer is reached")
        return [write_steps(example, example.data["style"], example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind = rng.random()
        if kind < 0.4:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        if kind < 0.7:
            return self.tell_turns(example, [write_steps(example, rng.choice(list(STYLES)), example.reference)])
        left_out = rng.sample(STEPS, rng.randint(1, 2))
        guess = str(max(0, int(example.reference) + rng.randint(-3, 3)))
        return self.tell_turns(example, [write_steps(example, rng.choice(list(STYLES)), guess, left_out)])


def keep_lines(lines: list[str], style: str) -> list[str]:
    """The lines of working that a user of this style wants."""
    count = STYLES[style]
    return lines if count is None else lines[len(lines) - count :]


def write_steps(example: Example, style: str, answer: str, left_out: Sequence[str] = ()) -> str:
    """An answer in named steps with the working of a style."""
    told = {
        "examine": " ".join(map(str, example.data["earlier"])),
        "pattern": style,
        "solve": " ".join(keep_lines(example.data["lines"], style)) or NO_LINES,
    }
    return "".join(f"<{name}>{told[name]}</{name}>" for name in STEPS if name not in left_out) + write_answer(answer)


def read_closed(text: str, name: str) -> str | None:
    """What stands between the first tags of a name; None where they are not there, or something is opened in between."""
    _, opened, rest = text.partition(f"<{name}>")
    inside, closed, _ = rest.partition(f"</{name}>")
    return inside.strip() if opened and closed and "<" not in inside else None


def read_steps(text: str) -> dict[str, str | None]:
    """Name of a step -> what it says."""
    return {name: read_closed(text, name) for name in STEPS}


def list_tags(text: str) -> set[str]:
    """The names between < and >, of tags that open or close."""
    return {piece.partition(">")[0].removeprefix("/") for piece in text.split("<")[1:]}


def grade_tags(text: str) -> float:
    """Share of the named steps that are there, closed and not empty; 0 with a tag that is not asked for."""
    if list_tags(text) - {*STEPS, "answer"}:
        return 0.0
    return sum(bool(inside) for inside in read_steps(text).values()) / len(STEPS)


def is_in_order(text: str) -> bool:
    """Whether it is the named steps in their order, then the answer, each once and with nothing between them."""
    rest = text.strip()
    for name in (*STEPS, "answer"):
        opening = f"<{name}>"
        inside, closed, after = rest.removeprefix(opening).partition(f"</{name}>")
        if not rest.startswith(opening) or not closed or "<" in inside:
            return False
        rest = after
    return not rest


def count_lines(solve: str | None) -> int | None:
    """Equations of the working; None where there is no such step, or other words than equations stand in it."""
    if not solve:
        return None
    words = solve.split() if solve != NO_LINES else []
    return len(words) if all(EQUATION.fullmatch(word) for word in words) else None
