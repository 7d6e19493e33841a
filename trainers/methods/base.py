"""Method: one published idea as hooks that an adapter calls. A subclass implements only the hooks it needs. Where the order of methods affects the
result, their ``roles`` decide it (``trainers/contract/stack_order.py``); methods with the same role act in the order of the recipe.

Hooks are thin: the formulas are pure functions in the same file that take tensors, without self, trainer or device. Shapes: B sequences, G per group,
N = B / G groups, T completion tokens, F reward functions, V vocabulary, D hidden size.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict
from trainers.contract.stack_order import Role
from trainers.methods.card import Card, Owned, Panel, Requirement, Trainer

if TYPE_CHECKING:
    from trainers.contract.events import Message
    from trainers.methods.batch import LossBatch, PairBatch, RewardBatch, RolloutBatch, RowBatch, TokenBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Episode
    from trainers.tasks.base import Example

# What a method may ask the adapter for. Each is one more forward pass a step unless the adapter has it anyway.
Need = Literal["logprobs", "hidden", "reference", "logits"]

# What a base divides a reward's distance to its group's mean by: the group's standard deviation, the generation batch's, or nothing;
# "leave-one-out" compares with the mean of the other members and divides by nothing. Empty where there are no groups.
Scale = Literal["", "group", "batch", "none", "leave-one-out"]

BINS = 20  # of a logged histogram


class NoConfig(Strict):
    """A method without parameters."""


class Method:
    """Class variables describe the method; hooks implement it. One instance per run; everything it remembers across steps is in ``state``."""

    card: ClassVar[Card]
    Config: ClassVar[type[Strict]] = NoConfig
    trains: ClassVar[frozenset[Trainer]] = frozenset({"grpo"})  # trainers it can be stacked on
    owns: ClassVar[frozenset[Owned]] = frozenset()
    roles: ClassVar[Mapping[str, Role]] = {}  # ordered hook -> whether it makes, maps or gates what comes in; one entry for each that is filled
    idle: ClassVar[Mapping[str, tuple[str, Any]]] = {}  # hook -> (parameter, value) under which it leaves what comes in as it is
    needs: ClassVar[frozenset[Need]] = frozenset()
    excludes: ClassVar[Mapping[str, str]] = {}  # method or base it cannot be stacked with, beyond what ``owns`` and ``roles`` say -> why
    cautions: ClassVar[Mapping[str, str]] = {}  # method it can be stacked with -> what of which one is lost then
    several_rows: ClassVar[bool] = False  # ``rollout`` returns episodes that may become several training rows each
    whole_answers: ClassVar[bool] = False  # its policy loss takes one advantage for an answer: the mean of what its tokens have
    requires: ClassVar[tuple[Requirement, ...]] = ()
    worlds: ClassVar[frozenset[str]] = frozenset()  # tasks it can train on, by name; empty: any
    reads_pairs: ClassVar[bool] = False  # on procedures: its dataset holds preference pairs, and its ``data`` hook says what is asked
    ordered: ClassVar[bool] = False  # DPO and SFT: rows are trained on in the order that ``data`` left them, not shuffled

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config if config is not None else self.Config()
        self.logged: dict[str, list[float | Tensor]] = {}

    def log(self, name: str, value: float | Tensor) -> None:
        """Logs a value of this step as the metric ``<method>/<name>``; several values in one step are averaged."""
        # A tensor is read when the step ends: reading it now would make a GPU wait.
        self.logged.setdefault(name, []).append(value.detach() if isinstance(value, Tensor) else value)

    def collect(self) -> dict[str, float]:
        """The values logged since the last call, averaged."""
        found = {name: sum(float(value) for value in values) / len(values) for name, values in self.logged.items()}
        self.logged.clear()
        return found

    def log_histogram(self, name: str, values: Tensor, low: float, high: float) -> None:
        """Shares of ``values`` (any shape) in ``BINS`` equal bins of [low, high]; values outside count in the outermost bins."""
        flat = values.detach().float().flatten().clamp(low, high)
        if flat.numel():
            shares = torch.histc(flat.cpu(), BINS, low, high) / flat.numel()
            for place, share in enumerate(shares.tolist()):
                self.log(f"{name}/{place:02d}", share)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return ()

    # Once, before training.

    def prepare(self, run: "RunContext") -> None:
        """Receives the run's policy, task, seed and folder, and loads what else the method needs."""

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Has a role. What the run trains on: a list of Example (GRPO), or of rows with prompt, chosen, rejected (DPO), prompt, completion, label
        (KTO), or prompt, completion (SFT). Extra keys of rows are passed on to the batch.
        """
        return rows

    # Each generation batch (GRPO), before and while completions are sampled.

    def curriculum(self, history: "History") -> Tensor | None:
        """(number of examples,) sampling weights >= 0 of the prompts for the next batch; None keeps the order of the dataset."""
        return None

    def prompts(self, example: "Example", members: int, step: int) -> "list[list[Message]] | None":
        """The prompt of each of the ``members`` of a group; None keeps the example's own prompt. Randomness: ``self.run.rng(...)``, never global."""
        return None

    def rollout(self, session: "Session") -> "Sequence[Completion | Episode]":
        """A completion or an episode for each of ``session.examples``. Only for the owner of "rollout".

        An episode is trained on in as many rows as ``compile_rows`` makes of it; one that may have several needs ``several_rows``.
        """
        raise NotImplementedError

    # Each generation batch, after scoring; without gradients.

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        """Has a role. (B,) total rewards so far -> (B,). Components are ``batch.rewards`` (B, F)."""
        return rewards

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        """Has a role. (B,) or (B, T) so far -> (B,) or (B, T). Rewards after shaping are ``batch.shaped`` (B,).

        A gate receives ones and returns 0 for rows or tokens to exclude: they get no gradient in any pass, whatever else is stacked. It gives the
        reason with ``batch.leave_out``.
        """
        return advantages

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        """Has a role. (R, T) of all rows so far, further rows with their member's -> (R, T). After ``advantages`` and its gates."""
        return advantages

    def observe(self, batch: "RolloutBatch") -> None:
        """Called last, on a scored batch: update running means, store trajectories, log."""

    # Each micro-batch, with gradients.

    def token_weights(self, batch: "LossBatch") -> Tensor | None:
        """(B, T) multiplier >= 0 on the policy-gradient term, computed once per sampled batch (in the first pass) and reused in later passes."""
        return None

    def log_ratios(self, batch: "LossBatch") -> Tensor | None:
        """(B, T) log of the importance ratio, replacing log pi - log pi_old. Only for the owner of "log ratio"."""
        return None

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        """Scalar to minimise, replacing the base's policy-gradient term. Only for the owner of "policy loss"."""
        raise NotImplementedError

    def loss(self, batch: "LossBatch | PairBatch | TokenBatch | RewardBatch") -> Tensor | None:
        """Scalar, or (B, T) averaged over the batch's loss tokens, added to the loss."""
        return None

    # Pairs (DPO), each micro-batch, with gradients.

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        """Has a role. Token log-ratios log pi / pi_ref of chosen (B, T) and rejected (B, T'), 0 where masked -> the same shapes."""
        return chosen, rejected

    def pair_margins(self, batch: "PairBatch") -> Tensor | None:
        """(B,) subtracted from the score before the loss."""
        return None

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """Has a role. (B,) loss of each pair; ``base(score)`` is the loss below this method in the stack, for any score (B,)."""
        losses: Tensor = base(score)
        return losses

    def pair_weights(self, batch: "PairBatch | RewardBatch", losses: Tensor) -> Tensor | None:
        """(B,) multiplier on the losses; also of a reward model."""
        return None

    # SFT, each micro-batch.

    def sft_weights(self, batch: "TokenBatch") -> Tensor | None:
        """(B, T) multiplier on the negative log-likelihood of each token."""
        return None

    # Before each optimiser step, after the backward pass.

    def gradients(self, model: Any) -> None:
        """Changes ``parameter.grad`` in place."""

    def reference(self, step: int, policy: Any, reference: Any) -> bool:
        """Updates the reference policy's weights in place; returns True if it did. Needs "reference"; only for the owner of "reference"."""
        return False

    # Checkpoints.

    def state(self) -> dict[str, Any]:
        """Everything remembered across steps: plain values, lists, dicts and tensors."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what ``state`` returned."""


class Base(Method):
    """A method that is a complete trainer, the base of a recipe. ``arguments`` returns its settings for the TRL trainer ``trainer``, if it is one."""

    trainer: ClassVar[Trainer]
    scale: ClassVar[Scale] = ""
    token_mean: ClassVar[bool] = False  # its loss is divided by the tokens of the whole batch, so that a rollout may be split into rows

    def arguments(self) -> dict[str, Any]:
        return {}


HOOKS = (
    "data",
    "curriculum",
    "prompts",
    "rollout",
    "rewards",
    "advantages",
    "row_advantages",
    "observe",
    "token_weights",
    "log_ratios",
    "policy_loss",
    "loss",
    "pair_ratios",
    "pair_margins",
    "pair_loss",
    "pair_weights",
    "sft_weights",
    "gradients",
    "reference",
)


def hooks_of(kind: type[Method]) -> tuple[str, ...]:
    """The hooks a method implements, in the order they are called."""
    return tuple(name for name in HOOKS if getattr(kind, name) is not getattr(Method, name))
