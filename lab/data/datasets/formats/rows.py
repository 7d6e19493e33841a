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
from lab.data.datasets.raw import RowError

TRUE, FALSE = {"true", "1", "yes", "good"}, {"false", "0", "no", "bad"}


def prompt_of(values: Values) -> list[Message] | None:
    """Prompt, with its context after it, what was said before and the system message. None where the answers hold the prompt themselves."""
    prompt, context = values.get("prompt"), values.get("context")
    if is_empty(prompt) and is_empty(context):
        return None
    if is_empty(prompt):
        raise RowError("prompt is empty")
    messages = parse_dialogue(prompt, "prompt", "user") if is_dialogue(prompt) else parse_messages(prompt, "prompt", "user")
    if not is_empty(context):
        if messages[-1]["role"] != "user":
            raise RowError(f"the prompt ends with a message of {messages[-1]['role']}, so that its context has no place")
        messages = [*messages[:-1], {**messages[-1], "content": f"{messages[-1]['content']}\n\n{require_text(context, 'context')}"}]
    return [*parse_history(values.get("history")), *messages]


def parse_history(value: Any) -> list[Message]:
    """Earlier rounds as pairs of question and answer (Alpaca)."""
    value = decode_json_cell(value) if isinstance(value, str) else value
    if is_empty(value):
        return []
    if not isinstance(value, list) or not all(isinstance(turn, list | tuple) and len(turn) == 2 for turn in value):
        raise RowError("history is no list of pairs of question and answer")
    roles = ("user", "assistant")
    return [{"role": role, "content": require_text(text, "history")} for pair in value for role, text in zip(roles, pair, strict=True)]


def with_system(prompt: list[Message], system: Any) -> list[Message]:
    """Raises RowError when the messages begin with other system words."""
    if is_empty(system):
        return prompt
    first: Message = {"role": "system", "content": require_text(system, "system")}
    if not prompt or prompt[0]["role"] != "system":
        return [first, *prompt]
    if prompt[0]["content"] != first["content"]:
        raise RowError("system says something else than the system message of the prompt")
    return prompt


def build_preference_row(values: Values, chosen: list[Message], rejected: list[Message]) -> Row:
    """Raises RowError."""
    if chosen == rejected:
        raise RowError("chosen and rejected are the same: there is nothing to prefer")
    prompt = prompt_of(values)
    if prompt is None:
        prompt, chosen, rejected = split_shared_prompt(chosen, rejected)
    whole = with_system(prompt, values.get("system"))
    chosen, rejected = (strip_repeated_prompt(prompt, strip_repeated_prompt(whole, side)) for side in (chosen, rejected))
    row = {"prompt": require_question(whole)}
    return row | {"chosen": require_answer(chosen, "chosen"), "rejected": require_answer(rejected, "rejected")} | build_tools_field(values)


def split_shared_prompt(chosen: list[Message], rejected: list[Message]) -> tuple[list[Message], list[Message], list[Message]]:
    """What two dialogues share, and the rest of each."""
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    prompt, chosen, rejected = chosen[:shared], chosen[shared:], rejected[shared:]
    if prompt and prompt[-1]["role"] == "assistant":
        raise RowError("the dialogues part at a question, not at an answer: they share no prompt")
    return prompt, chosen, rejected


def build_completion_row(values: Values, completion: list[Message]) -> Row:
    """A dialogue without a prompt of its own: its last answer, and what was before. Raises RowError."""
    prompt = prompt_of(values)
    if prompt is None and completion[-1]["role"] != "assistant":
        raise RowError(f"the conversation ends with a message of {completion[-1]['role']}, not with an answer")
    if prompt is None:
        prompt, completion = completion[:-1], completion[-1:]
    whole = with_system(prompt, values.get("system"))
    row = {"prompt": require_question(whole)}
    completion = strip_repeated_prompt(prompt, strip_repeated_prompt(whole, completion))
    return row | {"completion": require_answer(completion, "completion")} | build_tools_field(values)


def build_tools_field(values: Values) -> Row:
    tools = tools_of(values.get("tools"))
    return {} if tools is None else {"tools": tools}


def strip_repeated_prompt(prompt: list[Message], side: list[Message]) -> list[Message]:
    """The answer alone where the messages repeat the prompt."""
    return side[len(prompt) :] if prompt and side[: len(prompt)] == prompt and len(side) > len(prompt) else side


def require_question(prompt: list[Message]) -> list[Message]:
    if not any(message["role"] != "system" for message in prompt):
        raise RowError("there is no prompt: nothing is asked before the answer")
    if prompt[-1]["role"] == "assistant":
        raise RowError("the prompt ends with an assistant message")
    return prompt


def require_answer(messages: list[Message], name: str) -> list[Message]:
    if not messages:
        raise RowError(f"{name} ends where the prompt does")
    if messages[0]["role"] != "assistant":
        raise RowError(f"{name} goes on with a message of {messages[0]['role']}: its prompt is not what the row says")
    if messages[-1]["role"] != "assistant":
        raise RowError(f"{name} ends with a message of {messages[-1]['role']}, not with an answer")
    return messages


def parse_number(value: Any) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1e300 else None


def normalize_value(value: Any) -> str:
    """A value as people write it in a form: ``1.0`` and ``1`` are the same, and so are ``True`` and ``true``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = require_clean_text(str(value).strip().lower(), "the value")
    return text.removesuffix(".0") if text.removesuffix(".0").lstrip("-").isdigit() else text


def parse_binary_label(value: Any) -> bool:
    if normalize_value(value) in TRUE or normalize_value(value) in FALSE:
        return normalize_value(value) in TRUE
    raise RowError(f"label is {str(value)[:40]!r}; use true or false")


def best_and_worst(ranked: Sequence[tuple[float, Any]], what: str) -> tuple[Any, Any, float, float]:
    """Of (score, answer) the one with the highest and the one with the lowest score, with these; of equal ones the first.

    Raises RowError where all are equal.
    """
    if len(ranked) < 2:
        raise RowError(f"fewer than two answers have a {what}")
    high, low = max(score for score, _ in ranked), min(score for score, _ in ranked)
    if high == low:
        raise RowError(f"is a tie: all answers have the {what} {abs(high):g}, none is better")
    best, worst = (next(answer for score, answer in ranked if score == extreme) for extreme in (high, low))
    return best, worst, high, low
