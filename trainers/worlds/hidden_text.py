"""A text hidden behind spans: the prompt says which lines are about whom and shows one of them, the others have to be opened.

``Seen: Mia's pet is cat. Lines 1-3 Mia, 4-6 Leo. What is the city of Leo?`` wants ``<open>4-6</open>``, gets ``<information>Leo's pet is owl.
Leo's city is Rome. Leo's job is cook.</information>`` and ends with ``<answer>Rome</answer>``. In some questions the line that is seen tells the
answer, and nothing has to be opened. A stand-in for zooming into an image where it is needed, after Chain-of-Focus (arXiv 2505.15436).
"""

import random
import re
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, make_rewards
from trainers.worlds.facts import ATTRIBUTES, PEOPLE, Fact
from trainers.worlds.tool_use import CORRECT, FORMAT, ToolWorld, write_answer, write_call, write_information

SPAN = re.compile(r"(\d{1,2})(?:-(\d{1,2}))?")
LINES = 3  # about each person, and the most that are opened at once
NOTHING = "nothing"


class HiddenTextConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    seen: float = Field(0.3, ge=0, le=1, title="Answer seen", description="Share of questions that the line in the prompt answers.")


class HiddenText(ToolWorld):
    name = "hidden_text"
    title = "A text behind spans"
    summary = "Open the lines of a hidden text that the question is about, or none where what is seen is enough."
    Config = HiddenTextConfig
    config: HiddenTextConfig
    difficulties = {"easy": "2 people, 6 lines.", "medium": "3 people, 9 lines.", "hard": "4 people, 12 lines."}
    demonstrations = (
        "Of mixed quality by design, so that reinforcement has strategies to choose between: 40 % open the right lines where it is needed, 30 % open"
        " other lines and answer with what they say, 30 % guess."
    )
    tools: ClassVar[tuple[Tool, ...]] = (Tool("open", f"Opens lines of the text, {LINES} at most: 4-6."),)
    max_turns = 4
    max_turn_tokens = 14
    episode_tokens = 96

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": CORRECT,
                "format": (f"{FORMAT[0]} Every span must be one of the text's.", 0.0),
                "focus": ("1 when the line that the answer needs was opened, of questions that need one.", 0.0),
                "thrift": ("1 when nothing was opened, of questions that need no line.", 0.0),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        people = rng.sample(PEOPLE, {"easy": 2, "medium": 3, "hard": 4}[difficulty])
        lines = [Fact(who, name, rng.choice(ATTRIBUTES[name])) for who in people for name in rng.sample(list(ATTRIBUTES), LINES)]
        asked = rng.randrange(len(lines))
        is_seen = rng.random() < self.config.seen
        seen = asked if is_seen else rng.choice([place for place in range(len(lines)) if place != asked])
        parts = ", ".join(f"{LINES * place + 1}-{LINES * (place + 1)} {who}" for place, who in enumerate(people))
        fact = lines[asked]
        prompt = f"Seen: {lines[seen].sentence} Lines {parts}. What is the {fact.relation} of {fact.subject}?"
        data = {"lines": [[line.subject, line.relation, line.value] for line in lines], "needed": None if is_seen else asked + 1}
        return Example([Message("user", prompt)], fact.value, {**data, "attribute": fact.relation, "who": fact.subject})

    def begin_calls(self, example: Example) -> State:
        return {"opened": [], "broken": 0}

    def call_tool(self, example: Example, state: State, tool: str, argument: str, rng: random.Random) -> Step:
        lines, span = example.data.get("lines", []), read_span(argument)
        facts = {"tool": tool, "query": argument[:100]}
        if span is None or not 1 <= span[0] <= span[1] <= len(lines) or span[1] - span[0] >= LINES:
            return Step({**state, "broken": state["broken"] + 1}, write_information(NOTHING), facts=facts | {"error": "no such lines"})
        shown = range(span[0], span[1] + 1)
        evidence = [number for number in shown if number == example.data.get("needed")]
        text = " ".join(Fact(*lines[number - 1]).sentence for number in shown)
        return Step({**state, "opened": [*state["opened"], list(span)]}, write_information(text), facts=facts | {"evidence": evidence})

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        scores, needed = self.score_answer(example, state), example.data.get("needed")
        has_focus = any(first <= needed <= last for first, last in state["opened"]) if needed else None
        spared = not state["opened"] if needed is None and "lines" in example.data else None
        return {
            POLICY: {
                **scores,
                "format": 0.0 if state["broken"] else scores["format"],
                "focus": None if has_focus is None else float(has_focus),
                "thrift": None if spared is None else float(spared),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        needed = example.data["needed"]
        if needed is None or any(first <= needed <= last for first, last in state["opened"]):
            return [write_answer(example.reference)]
        if len(state["opened"]) + state["broken"] + 2 > self.max_turns:
            raise LookupError("too few turns are left")
        return [write_call("open", write_span(find_part(needed))), write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        kind, values = rng.random(), ATTRIBUTES[example.data["attribute"]]
        if kind < 0.4:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        if kind < 0.7:
            lines = example.data["lines"]
            part = rng.randrange(len(lines) // LINES)
            told = [value for _, relation, value in lines[LINES * part : LINES * (part + 1)] if relation == example.data["attribute"]]
            return self.tell_turns(example, [write_call("open", write_span(part)), write_answer(told[0] if told else rng.choice(values))])
        return self.tell_turns(example, [write_answer(rng.choice(values))])


def read_span(text: str) -> tuple[int, int] | None:
    """``4-6`` or ``4``; None for any other text."""
    found = SPAN.fullmatch(text) if text.isascii() else None
    return (int(found[1]), int(found[2] or found[1])) if found else None


def find_part(line: int) -> int:
    """Which person, from 0, a line is about."""
    return (line - 1) // LINES


def write_span(part: int) -> str:
    return f"{LINES * part + 1}-{LINES * (part + 1)}"
