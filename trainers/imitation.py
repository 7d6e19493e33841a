"""Learning from given answers beside reinforcement: cross-entropy on gold answers, for methods that mix both in one loss."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from trainers.events import Message
from trainers.reduce import masked_mean

if TYPE_CHECKING:
    from trainers.batch import LossBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example


def gold_answer(run: "RunContext", example: "Example") -> str | None:
    """The task's gold completion; None for an example of a person's own dataset that does not say how its answer is reached."""
    try:
        return run.task.gold(example)
    except LookupError:
        return None


def cross_entropy(run: "RunContext", prompts: Sequence[Sequence[Message]], texts: Sequence[str]) -> Tensor:
    """Scalar, with gradient: mean negative log-likelihood of the tokens of ``texts``, end token included."""
    logprobs, mask = run.logprobs(run.prompt_ids(prompts), [run.completion_ids(text) for text in texts])
    return -masked_mean(logprobs, mask)


def different_examples(batch: "LossBatch") -> list["Example"]:
    """Each example of a micro-batch once, in the order of its rows."""
    examples = dict(zip(batch.of(batch.rollout.example_ids), batch.of(batch.rollout.examples), strict=True))
    return list(examples.values())


def gold_loss(run: "RunContext", batch: "LossBatch") -> Tensor | None:
    """Cross-entropy on the gold answers of a micro-batch's prompts, each once; None where no prompt has one. One forward pass of B / G rows."""
    known = [(example.prompt, gold) for example in different_examples(batch) if (gold := gold_answer(run, example)) is not None]
    if not known:
        return None
    return cross_entropy(run, [prompt for prompt, _ in known], [gold for _, gold in known])
