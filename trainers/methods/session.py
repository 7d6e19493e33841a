"""Source of completions for a rollout method: the current policy, including the task's environment."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainers.contract.events import Message
from trainers.methods.context import RunContext
from trainers.policies.sampling import Completion, Sampler, Sampling
from trainers.tasks.base import Example


@dataclass
class Session:
    """One generation batch to produce. B rows: G adjacent rows for each prompt.

    A method that samples something else in a row (a prompt with a hint, another example of the batch) writes it into ``prompts`` and ``examples``;
    the row is scored and shown with these.
    """

    run: RunContext
    model: Any  # unwrapped policy
    examples: list[Example]  # B
    prompts: list[list[Message]]  # B; the methods' ``prompts`` have been applied
    group_size: int
    step: int
    total_steps: int
    temperature: float
    max_tokens: int
    rng: random.Random  # depends on the seed and the step alone

    def complete(
        self,
        prompts: Sequence[Sequence[Message]] | None = None,
        examples: Sequence[Example] | None = None,
        *,
        max_tokens: int = 0,
        temperature: float | None = None,
        top_k: int = 0,
        stop: Sequence[str] = (),
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        """One completion for each prompt (default: the whole batch), in order.

        ``prefixes``: token ids that each completion begins with; they are context (mask 0) and count towards ``max_tokens``. ``stop``: texts that end
        the completion, besides the end token. ``top_k``: sample from the k most likely tokens; 0 = all.
        """
        prompts = self.prompts if prompts is None else prompts
        examples = self.examples if examples is None else examples
        heat = self.temperature if temperature is None else temperature
        how = Sampling(heat, max_tokens or self.max_tokens, max(1, len(prompts)), top_k=top_k, stop=tuple(stop))
        sampler = Sampler(self.model, self.run.tokenizer, self.run.task, how)
        return sampler.complete_batch(examples, self.run.prompt_ids(prompts), prefixes)

    def score(self, examples: Sequence[Example], completions: Sequence[Completion]) -> list[float]:
        """Weighted sum of the reward functions."""
        return [self.run.score(example, made.text) for example, made in zip(examples, completions, strict=True)]

    def right(self, examples: Sequence[Example], completions: Sequence[Completion]) -> list[bool]:
        return [self.run.right(example, made.text) for example, made in zip(examples, completions, strict=True)]
