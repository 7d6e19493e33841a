"""Rows of datasets from their parts: a prompt with what belongs to it, one answer or two, and why they cannot be one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.data.datasets.formats.base import Row, Values
from lab.data.datasets.formats.messages import (
    Message,
    decode_json_cell,
    is_dialogue,
    is_empty,
    parse_dialogue,
    parse_messages,
    require_clean_text,
    require_text,
    tools_of,
)
from lab.data.datasets.raw import Broken

TRUE, FALSE = {"true", "1", "yes", "good"}, {"false", "0", "no", "bad"}


def prompt_of(values: Values) -> list[Message] | None:
    """Prompt, with its context after it, what was said before and the system message. None where the answers hold the prompt themselves."""
    prompt, context = values.get("prompt"), values.get("context")
    if is_empty(prompt) and is_empty(context):
        return None
    if is_empty(prompt):
        raise Broken("prompt is empty")
    asked = parse_dialogue(prompt, "prompt", "user") if is_dialogue(prompt) else parse_messages(prompt, "prompt", "user")
    if not is_empty(context):
        if asked[-1]["role"] != "user":
            raise Broken(f"the prompt ends with a message of {asked[-1]['role']}, so that its context has no place")
        asked = [*asked[:-1], {**asked[-1], "content": f"{asked[-1]['content']}\n\n{require_text(context, 'context')}"}]
    return [*parse_history(values.get("history")), *asked]


def parse_history(value: Any) -> list[Message]:
    """Earlier rounds as pairs of question and answer (Alpaca)."""
    value = decode_json_cell(value) if isinstance(value, str) else value
    if is_empty(value):
        return []
    if not isinstance(value, list) or not all(isinstance(one, list | tuple) and len(one) == 2 for one in value):
        raise Broken("history is no list of pairs of question and answer")
    roles = ("user", "assistant")
    return [{"role": role, "content": require_text(said, "history")} for pair in value for role, said in zip(roles, pair, strict=True)]


def with_system(asked: list[Message], system: Any) -> list[Message]:
    """Raises Broken when the messages begin with other system words."""
    if is_empty(system):
        return asked
    first: Message = {"role": "system", "content": require_text(system, "system")}
    if not asked or asked[0]["role"] != "system":
        return [first, *asked]
    if asked[0]["content"] != first["content"]:
        raise Broken("system says something else than the system message of the prompt")
    return asked


def build_preference_row(values: Values, chosen: list[Message], rejected: list[Message]) -> Row:
    """Raises Broken."""
    if chosen == rejected:
        raise Broken("chosen and rejected are the same: there is nothing to prefer")
    asked = prompt_of(values)
    if asked is None:
        asked, chosen, rejected = split_shared_prompt(chosen, rejected)
    whole = with_system(asked, values.get("system"))
    chosen, rejected = (strip_repeated_prompt(asked, strip_repeated_prompt(whole, side)) for side in (chosen, rejected))
    row = {"prompt": require_question(whole)}
    return row | {"chosen": require_answer(chosen, "chosen"), "rejected": require_answer(rejected, "rejected")} | build_tools_field(values)


def split_shared_prompt(chosen: list[Message], rejected: list[Message]) -> tuple[list[Message], list[Message], list[Message]]:
    """What two dialogues share, and the rest of each."""
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    asked, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    if asked and asked[-1]["role"] == "assistant":
        raise Broken("the dialogues part at a question, not at an answer: they share no prompt")
    return asked, chosen, rejected


def build_completion_row(values: Values, completion: list[Message]) -> Row:
    """A dialogue without a prompt of its own: its last answer, and what was before. Raises Broken."""
    asked = prompt_of(values)
    if asked is None and completion[-1]["role"] != "assistant":
        raise Broken(f"the conversation ends with a message of {completion[-1]['role']}, not with an answer")
    if asked is None:
        asked, completion = completion[:-1], completion[-1:]
    whole = with_system(asked, values.get("system"))
    row = {"prompt": require_question(whole)}
    completion = strip_repeated_prompt(asked, strip_repeated_prompt(whole, completion))
    return row | {"completion": require_answer(completion, "completion")} | build_tools_field(values)


def build_tools_field(values: Values) -> Row:
    found = tools_of(values.get("tools"))
    return {} if found is None else {"tools": found}


def strip_repeated_prompt(asked: list[Message], side: list[Message]) -> list[Message]:
    """The answer alone where the messages repeat the prompt."""
    return side[len(asked) :] if asked and side[: len(asked)] == asked and len(side) > len(asked) else side


def require_question(asked: list[Message]) -> list[Message]:
    if not any(one["role"] != "system" for one in asked):
        raise Broken("there is no prompt: nothing is asked before the answer")
    if asked[-1]["role"] == "assistant":
        raise Broken("the prompt ends with an assistant message")
    return asked


def require_answer(found: list[Message], name: str) -> list[Message]:
    if not found:
        raise Broken(f"{name} ends where the prompt does")
    if found[0]["role"] != "assistant":
        raise Broken(f"{name} goes on with a message of {found[0]['role']}: its prompt is not what the row says")
    if found[-1]["role"] != "assistant":
        raise Broken(f"{name} ends with a message of {found[-1]['role']}, not with an answer")
    return found


def parse_number(value: Any) -> float | None:
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return found if found is not None and abs(found) < 1e300 else None


def normalize_value(value: Any) -> str:
    """A value as people write it in a form: ``1.0`` and ``1`` are the same, and so are ``True`` and ``true``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    found = require_clean_text(str(value).strip().lower(), "the value")
    return found.removesuffix(".0") if found.removesuffix(".0").lstrip("-").isdigit() else found


def parse_binary_label(value: Any) -> bool:
    if normalize_value(value) in TRUE or normalize_value(value) in FALSE:
        return normalize_value(value) in TRUE
    raise Broken(f"label is {str(value)[:40]!r}; use true or false")


def best_and_worst(ranked: Sequence[tuple[float, Any]], what: str) -> tuple[Any, Any, float, float]:
    """Of (score, answer) the one with the highest and the one with the lowest score, with these; of equal ones the first.

    Raises Broken where all are equal.
    """
    if len(ranked) < 2:
        raise Broken(f"fewer than two answers have a {what}")
    high, low = max(score for score, _ in ranked), min(score for score, _ in ranked)
    if high == low:
        raise Broken(f"is a tie: all answers have the {what} {abs(high):g}, none is better")
    best, worst = (next(one for score, one in ranked if score == wanted) for wanted in (high, low))
    return best, worst, high, low
