"""What a run offers to its methods: its policy, task and seed, other models, and helpers for using them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt.context import Attempt
from trainers.contract.events import Message
from trainers.judges import rewards
from trainers.judges.judge import Judge
from trainers.policies import loading as policies
from trainers.policies.sampling import Completion, Sampler, Sampling, chat_ids
from trainers.rollouts.store import Store
from trainers.tasks.base import Example, Task

if TYPE_CHECKING:
    from trainers.methods.session import Session


@dataclass
class RunContext:
    attempt: Attempt
    examples: list[Any] = field(default_factory=list)  # what is trained on, after every ``data`` hook
    written_tokens: int = 0  # that policies have written in sessions so far, whatever became of them

    @property
    def task(self) -> Task:
        return self.attempt.task

    @property
    def tokenizer(self) -> Any:
        return self.attempt.policy.tokenizer

    @property
    def model(self) -> Any:
        """The policy in training (with adapters, where the run has them)."""
        return self.trained if self.trained is not None else self.attempt.policy.model

    @property
    def device(self) -> torch.device:
        return self.attempt.policy.device

    @property
    def seed(self) -> int:
        return self.attempt.spec.seed

    @property
    def training(self) -> Any:
        """The trainer's hyperparameters, as they hold now."""
        return self.attempt.training

    others: dict[str, Any] = field(default_factory=dict)  # folder -> its policy, frozen
    trained: Any = None  # set by the adapter once TRL has wrapped the policy

    @cached_property
    def reference(self) -> Any:
        """The reference policy: the run's starting weights, frozen. TRL's own copy where it has one."""
        return self.frozen("")

    @cached_property
    def judge(self) -> Judge | None:
        """The judge configured for this worker (LAB_JUDGE_URL); None without one."""
        return Judge.from_environment()

    @cached_property
    def store(self) -> Store:
        """What methods keep beyond an episode; in every checkpoint."""
        return Store()

    def load_other(self, folder: str) -> Any:
        """``frozen``, loaded once."""
        if folder not in self.others:
            self.others[folder] = self.frozen(folder)
        return self.others[folder]

    def keep_other(self, name: str, model: Any) -> None:
        """Makes a model that a method has trained known under a name, so that a player can be it (``folder``)."""
        self.others[name] = model

    def frozen(self, folder: str) -> Any:
        """Another policy, frozen; "" is the policy the run started from. Raises SpecError."""
        model = policies.load_model(Path(folder) if folder else self.attempt.policy.folder, torch.float32)
        return model.to(self.device).eval().requires_grad_(False)

    def rng(self, *key: object) -> random.Random:
        """Random numbers that depend only on the run's seed and ``key`` (method name, step, ...), so that a resumed run draws the same."""
        return random.Random("/".join(map(str, (self.seed, *key))))

    def score(self, example: Example, text: str) -> float:
        """Weighted sum of the run's reward functions; 0 where none returns a score."""
        return rewards.weighted_sum(rewards.score_all(self.task, text, example), self.attempt.weights) or 0.0

    def right(self, example: Example, text: str) -> bool:
        """Whether the task's accuracy function counts the text as correct."""
        return (rewards.apply_reward_function(self.task, next(iter(self.task.rewards)), text, example) or 0.0) > 0.5

    def sample(self, examples: Sequence[Example], temperature: float = 1.0, key: object = "", model: Any = None) -> list[Completion]:
        """One completion for each example, with its own seeded randomness; includes log-probabilities and entropies."""
        from trainers.attempt.evaluate import own_randomness

        longest = getattr(self.training, "max_completion_length", 0) or self.training.max_length // 2
        sampler = Sampler(model or self.model, self.tokenizer, self.task, Sampling(temperature, longest, self.attempt.sampling_batch))
        with own_randomness(self.rng("sample", key).randrange(2**31), self.device):
            return sampler.complete(examples)

    def session(
        self, examples: Sequence[Example], key: object, *, group_size: int = 1, temperature: float = 1.0, max_tokens: int = 0, model: Any = None
    ) -> "Session":
        """A session outside training, for ``data`` hooks: ``group_size`` rows for each example, randomness of its own that ``key`` names."""
        from trainers.methods.session import Session

        rows = [example for example in examples for _ in range(group_size)]
        longest = max_tokens or getattr(self.training, "max_completion_length", 0) or self.training.max_length // 2
        own = self.rng("session", key)
        prompts = [list(example.prompt) for example in rows]
        return Session(self, model or self.model, rows, prompts, group_size, 0, 0, temperature, longest, own, seeds=own)

    def prompt_ids(self, prompts: Sequence[Sequence[Message]]) -> list[list[int]]:
        """Token ids of chats, up to the point where the policy starts to write."""
        return chat_ids(self.tokenizer, prompts)

    def completion_ids(self, text: str, end: bool = True) -> list[int]:
        """Token ids of a completion, with the end token unless ``end`` is False."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return [*ids, self.tokenizer.eos_token_id] if end else ids

    def logprobs(
        self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], model: Any = None, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities (B, T) of given completions after given prompts (token ids) and their mask (B, T), padded on the right.

        Has gradients for the policy (``model`` None); wrap the call in ``torch.no_grad()`` where none are needed.
        """
        pad = self.tokenizer.pad_token_id
        rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
        width = max(len(row) for row in rows)
        ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=self.device)
        there = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self.device)
        logits = (model if model is not None else self.model)(input_ids=ids, attention_mask=there, use_cache=False).logits
        logprobs = torch.log_softmax(logits[:, :-1].float() / temperature, -1).gather(2, ids[:, 1:, None])[..., 0]  # (B, L - 1)
        longest = max(len(completion) for completion in completions)
        made, mask = logprobs.new_zeros(len(rows), longest), logprobs.new_zeros(len(rows), longest)
        pieces = []
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            start, count = len(prompt) - 1, len(completion)
            pieces.append(torch.nn.functional.pad(logprobs[i, start : start + count], (0, longest - count)))
            mask[i, :count] = 1.0
        made = torch.stack(pieces)
        return made, mask
