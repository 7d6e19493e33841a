"""The tensors that methods see. Shapes: B sequences, G per group, N = B / G groups, T completion tokens, F reward functions, V vocabulary, D hidden
size. Rows of a group are adjacent: row i is member i % G of group i // G. Masked positions of (B, T) tensors hold 0.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from trainers.maths.reduce import ROW_MEANS, masked_mean, reduced_as

if TYPE_CHECKING:
    from trainers.contract.events import Message
    from trainers.rollouts.compile import Row
    from trainers.tasks.base import Example

Key = TypeVar("Key", bound=Hashable)


@dataclass
class RolloutBatch:
    """Completions sampled together and scored; no gradients."""

    examples: "list[Example]"  # B; .reference is the gold answer, .data the task's own facts
    example_ids: list[int]  # B; place in the training examples
    prompts: "list[list[Message]]"  # B; as the policy saw them
    texts: list[str]  # B; completions as the reward functions saw them
    ids: Tensor  # (B, T) int64
    mask: Tensor  # (B, T) float; 1 = written by the policy
    ends: list[list[int]]  # B x T; how many characters of texts[i] there are after each token
    finished: Tensor  # (B,) bool; ended by itself, not cut off
    reward_names: list[str]
    rewards: Tensor  # (B, F); nan where a function has no opinion
    reward: Tensor  # (B,) weighted sum, before any method
    group_size: int
    step: int  # optimiser step the batch leads to, from 1
    total_steps: int
    max_tokens: int
    seed: int
    shaped: Tensor = field(default_factory=lambda: torch.empty(0))  # (B,) reward after the methods' ``rewards``
    logprobs: Tensor | None = None  # (B, T) of the policy that sampled; needs "logprobs"
    entropies: Tensor | None = None  # (B, T) nats; needs "logprobs"
    hidden: Tensor | None = None  # (B, T, D) last layer, at the position that holds each token; needs "hidden"
    reference_logprobs: Tensor | None = None  # (B, T); needs "reference"
    prompt_ids: list[list[int]] = field(default_factory=list)  # B
    notes: list[dict[str, Any]] = field(default_factory=list)  # B; what a rollout method said about each completion (Completion.notes)
    filtered: list[str] = field(default_factory=list)  # B, or none: why a method leaves the completion out of the loss, in words
    kept: Tensor | None = None  # (B, T) bool once the gates have spoken: False = no gradient in any pass; None = all of it is trained on

    @property
    def correct(self) -> Tensor:
        """(B,) bool: whether the task's first reward function, its accuracy, is above 0.5."""
        return self.rewards[:, 0].nan_to_num(0.0) > 0.5

    @property
    def lengths(self) -> Tensor:
        """(B,) tokens written by the policy."""
        return self.mask.sum(1)

    def leave_out(self, rows: Tensor, why: str) -> None:
        """Excludes completions (B,) bool from the loss, whatever other methods do; for each completion the first reason given is kept."""
        before = self.filtered or [""] * len(self.texts)
        self.filtered = [said or (why if out else "") for said, out in zip(before, rows.tolist(), strict=True)]

    @property
    def left_out(self) -> Tensor:
        """(B,) bool: whether a method excluded the completion from the loss with a reason."""
        said = self.filtered or [""] * len(self.mask)
        noted = [isinstance(note, dict) and note.get("filtered") for note in self.notes] or [""] * len(self.mask)  # a replay lacks some
        return torch.tensor([bool(one or other) for one, other in zip(said, noted, strict=True)], device=self.mask.device)

    def grouped(self, values: Tensor) -> Tensor:
        """(B, ...) -> (N, G, ...)."""
        return values.view(-1, self.group_size, *values.shape[1:])

    def span(self, row: int, start: int, end: int) -> Tensor:
        """(T,) bool: tokens that add any of the characters [start, end) of ``texts[row]``."""
        marks = torch.zeros(self.ids.shape[1], dtype=torch.bool, device=self.ids.device)
        before = 0
        for place, after in enumerate(self.ends[row]):
            if before < end and after > start and after > before:
                marks[place] = True
            before = after
        return marks


@dataclass
class RowBatch:
    """All rows that a sampled batch is trained on: the first one of each of its B members, in their order, then the others. R rows, T tokens.

    ``nodes`` (R, T): a number for each token that is the same where rows share a turn of a tree, -1 where there is none. ``rows``: what is known of
    each; None for a completion that no tree stands behind. ``peers``: the key of the rows that each is compared with.
    """

    rollout: RolloutBatch
    rows: "list[Row | None]"  # R
    members: Tensor  # (R,) int64: which member of the sampled batch each is of
    ids: Tensor  # (R, T) int64
    mask: Tensor  # (R, T) float; 1 = in the loss here
    nodes: Tensor  # (R, T) int64
    peers: list[str]  # R

    @property
    def is_first(self) -> Tensor:
        """(R,) bool: whether it is its member's first row, the one that is scored."""
        return torch.arange(len(self.ids), device=self.ids.device) < len(self.rollout.ids)

    @property
    def seats(self) -> list[str]:
        """R; who wrote it."""
        return [row.seat if row is not None else "policy" for row in self.rows]

    def turns(self) -> Tensor:
        """(R, T) int64: the turn of the row that each of the policy's tokens is in, from 0; -1 for other tokens."""
        made = torch.full_like(self.nodes, -1)
        for place, row in enumerate(self.rows):
            written = [turn for turn in row.turns if turn.role != "tool"] if row is not None else []
            for number, turn in enumerate(written):
                made[place, turn.start : turn.end] = number
        return torch.where(self.mask > 0, made, torch.full_like(made, -1))


@dataclass
class LossBatch:
    """One micro-batch of the GRPO loss. Its B rows are a slice of the sampled batch, in another order; ``rows`` gives their indices.

    What a method returns for each micro-batch is averaged over micro-batches. A mean over tokens or examples must therefore be one over the whole
    sampled batch (``token_mean``, ``base_mean``, ``weights_of``): splitting a batch into micro-batches must not change its gradient.
    """

    rollout: RolloutBatch
    rows: Tensor  # (B,) int64
    logprobs: Tensor  # (B, T) of the policy, with gradient
    old_logprobs: Tensor  # (B, T) of the policy that sampled (equal to logprobs.detach() in the first pass)
    entropies: Tensor  # (B, T) nats, with gradient
    mask: Tensor  # (B, T) float; 1 = in the loss
    advantages: Tensor  # (B,) or (B, T) after all methods, before token weights
    step: int
    total_steps: int
    max_tokens: int
    first_pass: bool
    epsilon: tuple[float, float]  # clip range of the ratio: below, above 1
    reference_logprobs: Tensor | None = None  # (B, T); needs "reference"
    logits: Tensor | None = None  # (B, T, V) at the sampling temperature, with gradient; needs "logits"
    token_count: Tensor | float | None = None  # loss tokens of the sampled batch over its micro-batches; None: those of this one
    loss_type: str = "grpo"  # TRL's name of the base's loss

    @property
    def slices(self) -> float:
        """Number of micro-batches that the sampled batch is split into."""
        return len(self.rollout.mask) / len(self.rows)

    @property
    def row_scale(self) -> float:
        """Factor that turns a mean over all rows into a mean over the rows that no method excluded; 1 where the base does not average over rows."""
        kept = int((~self.rollout.left_out).sum())
        return len(self.rollout.mask) / kept if kept and self.loss_type in ROW_MEANS else 1.0

    def token_mean(self, values: Tensor) -> Tensor:
        """(B, T) -> scalar: this micro-batch's contribution to the mean over all loss tokens of the sampled batch."""
        return masked_mean(values, self.mask, self.token_count)

    def base_mean(self, values: Tensor) -> Tensor:
        """(B, T) -> scalar: reduced as the base reduces its policy-gradient term, so that both have the same scale."""
        return self.row_scale * reduced_as(self.loss_type, values, self.mask, self.max_tokens, self.token_count)

    def weights_of(self, keys: Sequence[Key]) -> dict[Key, float]:
        """``keys``: one for each row of the sampled batch. Weights for the keys of this micro-batch: a sum with these weights, averaged over the
        micro-batches, counts each key of the sampled batch once.
        """
        every, here = Counter(keys), Counter(self.of(list(keys)))
        return {key: self.slices * count / every[key] for key, count in here.items()}

    @property
    def ids(self) -> Tensor:
        """(B, T) int64."""
        return self.of(self.rollout.ids)

    def of(self, values: Any) -> Any:
        """Selects this micro-batch's rows from a value of the whole sampled batch: a tensor (B', ...) or a list."""
        if isinstance(values, Tensor):
            return values[self.rows.to(values.device)]
        return [values[row] for row in self.rows.tolist()]

    def token_advantages(self) -> Tensor:
        """(B, T) or (B, 1)."""
        return self.advantages if self.advantages.dim() == 2 else self.advantages.unsqueeze(1)


@dataclass
class PairBatch:
    """One micro-batch of preference pairs. T and T' differ: chosen and rejected tensors are padded on the right separately.

    ``score`` is the input of the base loss: beta * (sum of chosen ratios - sum of rejected ratios) for DPO, the difference of the means for IPO,
    after the methods' ``pair_ratios`` and ``pair_margins``.
    """

    rows: list[dict[str, Any]]  # B dataset rows; extra columns of the dataset are in them
    indices: list[int]  # B; place of each row in the training rows
    chosen_ids: Tensor  # (B, T)
    rejected_ids: Tensor  # (B, T')
    chosen_mask: Tensor  # (B, T) float; 1 = completion token
    rejected_mask: Tensor
    chosen_logprobs: Tensor  # (B, T) with gradient, 0 where masked
    rejected_logprobs: Tensor
    chosen_reference: Tensor  # (B, T)
    rejected_reference: Tensor
    beta: float
    step: int
    total_steps: int
    reduce: Callable[[Tensor, Tensor], Tensor]  # (ratios (B, T), mask) -> (B,): sum for DPO, mean for IPO
    score: Tensor = field(default_factory=lambda: torch.empty(0))  # (B,)
    losses: Tensor = field(default_factory=lambda: torch.empty(0))  # (B,)

    def column(self, name: str, default: Any = None) -> list[Any]:
        """A dataset column; ``default`` where a row lacks it."""
        return [row.get(name, default) for row in self.rows]


@dataclass
class RewardBatch:
    """One micro-batch of pairs that a reward model is trained on."""

    rows: list[dict[str, Any]]  # B dataset rows; extra columns of the dataset are in them
    indices: list[int]  # B; place of each row in the training rows
    chosen: Tensor  # (B,) scores, with gradient
    rejected: Tensor  # (B,)
    model_inputs: dict[str, Tensor]  # input_ids, attention_mask (2B, T): all chosen above all rejected, padded on the right
    step: int
    total_steps: int


@dataclass
class TokenBatch:
    """One micro-batch of supervised rows."""

    rows: list[dict[str, Any]]
    ids: Tensor  # (B, T) the token predicted at each position
    mask: Tensor  # (B, T) float; 1 = in the loss
    logprobs: Tensor  # (B, T) with gradient
    entropies: Tensor  # (B, T)
    step: int
    total_steps: int
    model_inputs: dict[str, Tensor] = field(default_factory=dict)  # input_ids, attention_mask (B, T + 1): for another model's forward pass
