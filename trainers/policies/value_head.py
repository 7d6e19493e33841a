"""A value head: what a policy's last hidden state says of the outcome, between -1 (wrong) and 1 (right).

V(s) = tanh(w . LayerNorm(h(s)) + b), h(s) the last layer's state at the last token of a context. It is fitted by the mean squared error to outcomes
or backed-up values, or by classification into bins of [-1, 1], of which V is the expected centre (``trainers/maths/value_histogram.py``). Neither
touches the policy. Whoever fits it keeps its weights in the method's state where a resumed run needs them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainers.maths.value_histogram import ValueBins, ValueLoss, choose_value_bins
from trainers.policies.hidden_states import read_hidden_states

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.rollouts.tree import Node

AT_ONCE = 256  # states in one step of the fitting


class ValueHead(nn.Module):
    """Says 0 of every state until it is fitted. ``bins``, of [-1, 1]: read from a histogram over them."""

    def __init__(self, size: int, bins: ValueBins | None = None) -> None:
        super().__init__()
        self.bins = bins
        self.norm, self.out = nn.LayerNorm(size), nn.Linear(size, bins.count if bins else 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, states: Tensor) -> Tensor:
        """(N, D) -> (N,)."""
        made: Tensor = self.out(self.norm(states.float()))
        return self.bins.read(made) if self.bins else torch.tanh(made[..., 0])

    def compute_loss(self, states: Tensor, targets: Tensor) -> Tensor:
        """(N, D), (N,) -> scalar."""
        if self.bins:
            return self.bins.compute_loss(self.out(self.norm(states.float())), targets).mean()
        return nn.functional.mse_loss(self(states), targets)

    def estimate(self, states: Tensor) -> list[float]:
        with torch.no_grad():
            found: list[float] = self(states).tolist()
        return found


def build_value_head(run: "RunContext", loss: ValueLoss = "mse") -> ValueHead:
    return ValueHead(run.model.config.get_text_config().hidden_size, choose_value_bins(loss, -1.0, 1.0)).to(run.device)


def fit_value_head(head: ValueHead, states: Tensor, targets: Tensor, steps: int, rate: float, generator: torch.Generator) -> float:
    """(N, D), (N,) -> the mean squared error after ``steps`` of Adam on batches drawn by ``generator`` (on the CPU); the head is changed in place.

    Each call begins with an optimiser of its own, so that what is to be kept of a head is its weights alone.
    """
    if not len(states):
        return 0.0
    targets, optimizer = targets.to(states.device, torch.float32), torch.optim.Adam(head.parameters(), lr=rate)
    with torch.enable_grad():
        for _ in range(steps):
            places = torch.randint(len(states), (min(AT_ONCE, len(states)),), generator=generator).to(states.device)
            optimizer.zero_grad()
            head.compute_loss(states[places], targets[places]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    with torch.no_grad():
        return float(nn.functional.mse_loss(head(states), targets))


def read_last_states(run: "RunContext", at: "Sequence[Node]", model: Any = None) -> Tensor:
    """(N, D) float: the last layer's state at the last token of each node's context, by the policy or by ``model``."""
    contexts = [[*prompt, *rest] for prompt, rest in (node.episode.context_ids(node) for node in at)]
    return read_hidden_states(run, contexts, [[len(context) - 1] for context in contexts], model)
