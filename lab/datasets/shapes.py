"""Third-party rows in TRL's shapes. ``guess`` says what a file looks like, ``convert`` makes one row of it or says why it cannot.

- columns: a column each (TRL; also UltraFeedback as cleaned, with scores and with messages that repeat the prompt);
- transcript: chosen and rejected are whole dialogues "\\n\\nHuman: … \\n\\nAssistant: …" (HH-RLHF); the prompt is what they share;
- rated: one column lists answers with ratings (UltraFeedback as published); best against worst.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.datasets.models import Form
from lab.datasets.raw import Broken

SHAPES = {
    "columns": "A column for each part (TRL)",
    "transcript": "Dialogues “Human: … Assistant: …” (HH-RLHF)",
    "rated": "A list of rated answers: best against worst (UltraFeedback)",
}
PARTS = {  # what a shape takes from columns, by form
    ("columns", Form.PREFERENCE): ("prompt", "chosen", "rejected"),
    ("columns", Form.KTO): ("prompt", "completion", "label"),
    ("columns", Form.COMPLETION): ("prompt", "completion"),
    ("transcript", Form.PREFERENCE): ("chosen", "rejected"),
    ("rated", Form.PREFERENCE): ("prompt", "answers"),
}
OPTIONAL = {"prompt"}  # may be what the answers begin with
NAMES = {
    "prompt": ("prompt", "question", "instruction", "input", "query", "problem"),
    "chosen": ("chosen", "preferred", "accepted", "winner", "response_w", "better", "chosen_response"),
    "rejected": ("rejected", "dispreferred", "loser", "response_l", "worse", "rejected_response"),
    "completion": ("completion", "response", "output", "answer", "target", "messages", "conversations"),
    "label": ("label", "desirable", "is_good", "good", "rating"),
    "answers": ("completions", "responses", "answers", "candidates"),
}
TEXTS = ("response", "completion", "content", "text", "output", "answer")
SCORES = ("overall_score", "score", "rating", "fine-grained_score", "average_rating")
ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant", "user": "user", "assistant": "assistant", "system": "system"}
ROLES |= {"tool": "tool"}
TURN = re.compile(r"(?:^|\n\n)(Human|Assistant): ?")
TRUE, FALSE = {"true", "1", "yes", "good", "1.0"}, {"false", "0", "no", "bad", "0.0", "-1"}

Message = dict[str, str]
Row = dict[str, Any]


@dataclass(frozen=True)
class Mapped:
    """How rows are read: the shape, the form they become, and the column of each part."""

    shape: str = "columns"
    form: str = Form.PREFERENCE
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str, ...]:
        return PARTS.get((self.shape, Form(self.form)), ())

    @property
    def missing(self) -> list[str]:
        return [part for part in self.parts if not self.columns.get(part) and part not in OPTIONAL]


def columns_of(rows: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(name) for row in rows if isinstance(row, dict) for name in row))


def guess(rows: Sequence[Any]) -> Mapped:
    """From the first rows of a file."""
    there = columns_of(rows)
    columns = {part: column for part in NAMES if (column := named(part, there))}
    sample = next((row for row in rows if isinstance(row, dict)), {})
    if "chosen" in columns and "rejected" in columns:
        dialogue = isinstance(sample.get(columns["chosen"]), str) and TURN.match(sample[columns["chosen"]].lstrip("\n"))
        return Mapped("transcript" if dialogue and "prompt" not in columns else "columns", Form.PREFERENCE, columns)
    if "answers" in columns and isinstance(parsed(sample.get(columns["answers"])), list):
        return Mapped("rated", Form.PREFERENCE, columns)
    if "completion" in columns:
        return Mapped("columns", Form.KTO if "label" in columns else Form.COMPLETION, columns)
    return Mapped("columns", Form.PREFERENCE, columns)


def named(part: str, there: Sequence[str]) -> str:
    lower = {name.lower(): name for name in reversed(there)}
    return next((lower[name] for name in NAMES[part] if name in lower), "")


def convert(raw: Any, mapped: Mapped) -> tuple[Row, dict[str, float]]:
    """The row and the scores it names. Raises Broken."""
    if isinstance(raw, Broken):
        raise raw
    if not isinstance(raw, dict):
        raise Broken("is no object with named columns")
    values = {part: raw.get(mapped.columns.get(part, "")) for part in mapped.parts}
    for part, value in values.items():
        if value is None and (part not in OPTIONAL or mapped.columns.get(part)):
            raise Broken(f"{mapped.columns.get(part) or part} is missing")
    if mapped.shape == "transcript":
        return pair(None, dialogue(values["chosen"], "chosen"), dialogue(values["rejected"], "rejected")), {}
    if mapped.shape == "rated":
        return rated(values["prompt"], parsed(values["answers"]))
    if mapped.form == Form.PREFERENCE:
        sides = [messages(values[name], name, "assistant") for name in ("chosen", "rejected")]
        return pair(values["prompt"], *sides), scores(raw)
    row: Row = single(values["prompt"], messages(values["completion"], "completion", "assistant"))
    return row | ({"label": label(values["label"])} if mapped.form == Form.KTO else {}), {}


def pair(prompt: Any, chosen: list[Message], rejected: list[Message]) -> Row:
    if chosen == rejected:
        raise Broken("chosen and rejected are the same: there is nothing to prefer")
    if prompt is None:
        shared = 0
        while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
            shared += 1
        asked, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
        if asked and asked[-1]["role"] == "assistant":
            raise Broken("the dialogues part at a question, not at an answer: they share no prompt")
    else:
        asked = messages(prompt, "prompt", "user")
        chosen, rejected = without(asked, chosen), without(asked, rejected)
    question(asked)
    return {"prompt": asked, "chosen": answer(chosen, "chosen"), "rejected": answer(rejected, "rejected")}


def single(prompt: Any, completion: list[Message]) -> Row:
    if prompt is None:  # a dialogue: its last answer, and what was before
        asked, completion = completion[:-1], completion[-1:]
    else:
        asked = messages(prompt, "prompt", "user")
        completion = without(asked, completion)
    question(asked)
    return {"prompt": asked, "completion": answer(completion, "completion")}


def without(asked: list[Message], dialogue: list[Message]) -> list[Message]:
    """The answer alone where the messages repeat the prompt."""
    return dialogue[len(asked) :] if dialogue[: len(asked)] == asked else dialogue


def question(asked: list[Message]) -> None:
    if not asked:
        raise Broken("the answers share no prompt")
    if asked[-1]["role"] == "assistant":
        raise Broken("the prompt ends with an assistant message")


def answer(found: list[Message], name: str) -> list[Message]:
    if not found:
        raise Broken(f"{name} ends where the prompt does")
    if found[0]["role"] != "assistant":
        raise Broken(f"{name} goes on with a message of {found[0]['role']}: its prompt is not what the row says")
    return found


def dialogue(value: Any, name: str) -> list[Message]:
    """The messages of "\\n\\nHuman: …\\n\\nAssistant: …"."""
    if not isinstance(value, str):
        raise Broken(f"{name} is no text")
    pieces = TURN.split(value.lstrip("\n"))
    if len(pieces) < 3 or pieces[0].strip():
        raise Broken(f"{name} does not begin with Human: or Assistant:")
    found = [
        {"role": ROLES[who.lower() if who == "Human" else "assistant"], "content": text(words.strip(), name)}
        for who, words in zip(pieces[1::2], pieces[2::2], strict=True)
    ]
    if found[-1]["role"] != "assistant":
        raise Broken(f"{name} ends with Human:")
    return found


def rated(prompt: Any, answers: Any) -> tuple[Row, dict[str, float]]:
    if not isinstance(answers, list) or len(answers) < 2:
        raise Broken("has fewer than two answers")
    known = [(rating(one), place, one) for place, one in enumerate(answers)]
    ranked = sorted(((score, -place, one) for score, place, one in known if score is not None), key=lambda entry: entry[:2])
    if len(ranked) < 2:
        raise Broken("fewer than two answers have a rating")
    (low, _, worst), (high, _, best) = ranked[0], ranked[-1]
    if low == high:
        raise Broken(f"all answers are rated {high:g}: none is better")
    sides = [messages(next((one[name] for name in TEXTS if one.get(name) is not None), None), "answer", "assistant") for one in (best, worst)]
    return pair(prompt if prompt is not None else "", *sides), {"chosen": high, "rejected": low}


def rating(one: Any) -> float | None:
    """The score of one answer, else the mean of its annotations' ratings."""
    if not isinstance(one, dict):
        return None
    for name in SCORES:
        if (value := number(one.get(name))) is not None:
            return value
    aspects = one.get("annotations")
    inner = [number(own.get("Rating", own.get("rating"))) for own in aspects.values() if isinstance(own, dict)] if isinstance(aspects, dict) else []
    known = [value for value in inner if value is not None]
    return sum(known) / len(known) if known else None


def scores(raw: Row) -> dict[str, float]:
    found = {side: number(raw.get(f"score_{side}", raw.get(f"{side}_score"))) for side in ("chosen", "rejected")}
    return {side: value for side, value in found.items() if value is not None}


def number(value: Any) -> float | None:
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return found if found is not None and abs(found) < 1e300 else None


def label(value: Any) -> bool:
    words = str(value).strip().lower()
    if words in TRUE or words in FALSE:
        return words in TRUE
    raise Broken(f"label is {str(value)[:40]!r}; use true or false")


def parsed(value: Any) -> Any:
    """A list that stands as JSON in a cell."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return found if isinstance(found, list) and found and all(isinstance(one, dict) for one in found) else value
    return value


def messages(value: Any, name: str, role: str) -> list[Message]:
    value = parsed(value)
    if isinstance(value, str):
        return [{"role": role, "content": text(value, name)}]
    if not isinstance(value, list) or not value:
        raise Broken(f"{name} is neither text nor a list of messages")
    return [message(one, name) for one in value]


def message(one: Any, name: str) -> Message:
    if not isinstance(one, dict):
        raise Broken(f"{name} holds something that is no message")
    role = ROLES.get(str(one.get("role", one.get("from"))).lower())
    if role is None:
        raise Broken(f"{name} has the role {str(one.get('role', one.get('from')))[:40]!r}; known are user, assistant, system and tool")
    return {"role": role, "content": text(one.get("content", one.get("value")), name)}


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Broken(f"{name} is no text")
    if not value.strip():
        raise Broken(f"{name} is empty")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise Broken(f"{name} holds a NUL or a lone surrogate, which is no text")
    return value
