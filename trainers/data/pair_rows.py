"""Rows of preference pairs as methods read them: their texts, their examples, and log-probabilities of either side under any policy.

A row holds ``prompt``, ``chosen`` and ``rejected``, each a list of messages; other columns are a method's own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.maths.reduce import masked_row_mean
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example

if TYPE_CHECKING:
    from trainers.methods.context import RunContext

Row = dict[str, Any]

AT_ONCE = 64  # rows in one forward pass without gradients


def join_message_texts(messages: Sequence[dict[str, str]]) -> str:
    """What a side says, or a prompt asks."""
    return "\n".join(message["content"] for message in messages)


def to_answer_messages(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def question_of(value: Any) -> list[dict[str, str]] | None:
    """A column that holds a prompt, as text or as messages; None where it holds none."""
    if isinstance(value, str) and value.strip():
        return [{"role": "user", "content": value}]
    return value if isinstance(value, list) and value else None


def examples_of(rows: Sequence[Row], run: "RunContext") -> list[Example | None]:
    """The task's example behind each row: from the columns ``reference`` (and ``data``), else the task's own pair prompt of the same text.

    None where neither says what the right answer is.
    """
    training, spec = run.training, run.attempt.spec
    count = max(len(rows), getattr(training, "sampled_prompts", 0))
    own = {join_message_texts(as_rows(example.prompt)): example for example in run.task.examples("pairs", count, run.seed, spec.task.difficulty)}
    found: list[Example | None] = []
    for row in rows:
        if isinstance(reference := row.get("reference"), str):
            data = row.get("data")
            found.append(Example([Message(**message) for message in row["prompt"]], reference, data if isinstance(data, dict) else {}))
        else:
            found.append(own.get(join_message_texts(row["prompt"])))
    return found


def gold_of(run: "RunContext", example: Example | None) -> str | None:
    """The task's own solution; None where nothing says how the answer is reached."""
    try:
        return None if example is None else run.task.gold(example)
    except LookupError:  # a person's own example, with a reference alone
        return None


def token_ids(run: "RunContext", row: Row, side: str, prompt: str = "prompt") -> tuple[list[int], list[int]]:
    """Token ids of a row's prompt and of one of its sides, split and cut where the DPO trainer does."""
    before: list[int] = tokenize_messages(run, row[prompt], True, row.get("tools"))
    whole = tokenize_messages(run, [*row[prompt], *row[side]], False, row.get("tools"))[: run.training.max_length]
    start = next((i for i, (one, other) in enumerate(zip(before, whole, strict=False)) if one != other), min(len(before), len(whole)))
    return whole[:start], whole[start:]


def tokenize_messages(run: "RunContext", messages: Sequence[dict[str, Any]], ask: bool, tools: Any = None) -> list[int]:
    render = run.tokenizer.apply_chat_template
    found: list[int] = render(list(messages), tools=tools, add_generation_prompt=ask, tokenize=True, return_dict=True)["input_ids"]
    return found


def compute_side_logprobs(run: "RunContext", rows: Sequence[Row], side: str, model: Any = None, prompt: str = "prompt") -> tuple[Tensor, Tensor]:
    """Log-probabilities (B, T) of the tokens of one side and their mask; ``model`` None is the policy. With gradients unless switched off."""
    pairs = [token_ids(run, row, side, prompt) for row in rows]
    return run.logprobs([before for before, _ in pairs], [after for _, after in pairs], model)


def sum_side_logprobs(run: "RunContext", rows: Sequence[Row], side: str, model: Any = None, prompt: str = "prompt") -> Tensor:
    """(B,) log-probability of one side of each row."""
    values, mask = compute_side_logprobs(run, rows, side, model, prompt)
    return (values * mask).sum(1)


def compute_side_log_ratios(run: "RunContext", rows: Sequence[Row], side: str, prompt: str = "prompt") -> Tensor:
    """(B,) log pi - log pi_ref of one side, with gradients through the policy."""
    with torch.no_grad():
        reference = sum_side_logprobs(run, rows, side, run.reference, prompt)
    return sum_side_logprobs(run, rows, side, None, prompt) - reference


@torch.no_grad()
def frozen_scores(run: "RunContext", rows: Sequence[Row], side: str, model: Any = None, mean: bool = False) -> list[float]:
    """Log-probability of one side of every row, in batches: its sum over the tokens, or their mean."""
    found: list[float] = []
    for start in range(0, len(rows), AT_ONCE):
        values, mask = compute_side_logprobs(run, rows[start : start + AT_ONCE], side, model)
        found += (masked_row_mean(values, mask) if mean else (values * mask).sum(1)).tolist()
    return found
