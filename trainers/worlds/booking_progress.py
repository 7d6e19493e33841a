"""A booking turn by turn, each turn in a context of its own: what is done so far stands in the prompt in place of the history.

``Done: city Rome. For 4 nights.`` wants ``<progress>city Rome nights 4</progress><call>nights 4</call>``. The progress that a turn writes is all that
the next one sees of it; the last turn answers with the whole booking. This is the context of PARL-MT's rollouts (arXiv 2509.23206).
"""

import random
from dataclasses import dataclass
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import MAX_TURN_CHARACTERS, State, Step
from trainers.worlds.tool_use import write_answer, write_call

PROGRESS, END_PROGRESS = "<progress>", "</progress>"
CALL, ANSWER = "call", "answer"
NOTHING = "nothing"


@dataclass(frozen=True)
class ProgressTurn:
    """What a turn says: the progress, whether it calls or answers, and with what."""

    progress: str
    kind: str
    content: str


def tell_booking(booking: dict[str, str]) -> str:
    """A booking as progress tells it."""
    return " ".join(f"{name} {value}" for name, value in booking.items()) or NOTHING


def parse_progress_turn(text: str) -> ProgressTurn | None:
    """A progress block and then one call or one answer; None for any other text."""
    rest = text.strip()
    if not rest.startswith(PROGRESS) or len(text) > MAX_TURN_CHARACTERS:
        return None
    progress, closed, rest = rest[len(PROGRESS) :].partition(END_PROGRESS)
    for kind in (CALL, ANSWER):
        opening, closing, end = f"<{kind}>", f"</{kind}>", rest.strip()
        is_whole = end.startswith(opening) and end.endswith(closing) and len(end) >= len(opening) + len(closing)
        content = end[len(opening) : -len(closing)]
        if closed and is_whole and "<" not in progress + content:
            return ProgressTurn(progress.strip(), kind, content.strip())
    return None


def book_so_far(example: Example, turn: int) -> dict[str, str]:
    """The booking that the user's first ``turn`` wishes make."""
    return {name: value for name, value, _ in example.data["script"][:turn]}


def list_gold_contents(example: Example) -> list[str]:
    """What each turn of a conversation calls, and what the last one answers."""
    return [*(f"{name} {value}" for name, value, _ in example.data["script"]), " ".join(example.data["wanted"].values())]


def build_turn_example(example: Example, turn: int, words: str, progress: str) -> Example:
    """Turn ``turn`` (from 0) of a conversation: the user says ``words`` to somebody who knows ``progress`` alone."""
    data = {**example.data, "turn": turn, "done": progress}
    return Example([Message("user", f"Done: {progress}. {words}")], list_gold_contents(example)[turn], data)


def score_progress_turn(example: Example, state: State) -> dict[str, float | None]:
    if "turn" not in example.data:
        return {"correct": None, "progress": None}
    wanted = tell_booking(book_so_far(example, example.data["turn"] + 1))
    return {"correct": float(state["said"] == example.reference), "progress": float(state["progress"] == wanted)}


def take_progress_turn(example: Example, state: State, text: str) -> Step:
    turn = parse_progress_turn(text)
    is_last = example.data.get("turn") == len(example.data.get("script", ()))
    if turn is None or (turn.kind == ANSWER) != is_last:
        return Step({**state, "errors": state["errors"] + 1}, done=True, facts={"error": "no progress with the call or the answer after it"})
    facts: dict[str, Any] = {"tool": turn.kind, "query": turn.content[:100], "evidence": [turn.content] if turn.content == example.reference else []}
    return Step({**state, "said": turn.content[:100], "progress": turn.progress[:200]}, done=True, facts=facts)


def write_progress_turn(example: Example, booking: dict[str, str], content: str) -> str:
    """A turn that tells ``booking`` as its progress and calls, or in the last turn answers, ``content``."""
    end = write_answer(content) if example.data["turn"] == len(example.data["script"]) else write_call(CALL, content)
    return f"{PROGRESS}{tell_booking(booking)}{END_PROGRESS}{end}"


def write_careless_turn(example: Example, values: tuple[str, ...], rng: random.Random) -> str:
    """A turn that forgets something in its progress, or says another value than the user's."""
    booking = book_so_far(example, example.data["turn"] + 1)
    if rng.random() < 0.5:
        booking.pop(rng.choice(list(booking)))
        return write_progress_turn(example, booking, example.reference)
    *before, _ = example.reference.split()
    return write_progress_turn(example, booking, " ".join([*before, rng.choice(values)]))
