"""A value head: what is expected from a place in an episode, read from the policy's last layer there.

V(s) = w tanh(W norm(h_s)),  h_s (D,): the state from which the next token is predicted

The head has an optimiser of its own and learns given targets by squared error, or, with ``bins``, by the cross-entropy to a histogram around each
(``trainers/maths/value_histogram.py``): then it has an output for each bin, and V is the expected centre. No gradient of it reaches the policy, so
that the policy's loss stays the method's. It starts at the same V everywhere: 0, or the middle of the bins. For methods whose rollouts are short of
a critic: generalised advantages, values of search nodes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainers.maths.value_histogram import ValueBins, match_mean_histogram
from trainers.policies.hidden_states import read_hidden_states

if TYPE_CHECKING:
    from trainers.methods.context import RunContext

WIDTH = 64  # of the hidden layer


class ValueNet(nn.Module):
    """(..., D) states -> (...) values. ``bins``: read from a histogram over them."""

    def __init__(self, size: int, seed: int, bins: ValueBins | None = None) -> None:
        super().__init__()
        self.bins = bins
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, WIDTH), nn.Tanh(), nn.Linear(WIDTH, bins.count if bins else 1))
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: Tensor) -> Tensor:
        made: Tensor = self.layers(states.float())
        return self.bins.read(made) if self.bins else made[..., 0]

    def compute_loss(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(n, D), (n,) -> the mean loss, with gradient, and the values (n,), without."""
        made: Tensor = self.layers(states.float())
        if self.bins:
            return self.bins.compute_loss(made, targets).mean(), self.bins.read(made.detach())
        return nn.functional.mse_loss(made[..., 0], targets), made.detach()[..., 0]

    @torch.no_grad()
    def match_mean(self, states: Tensor, targets: Tensor) -> None:
        """Moves the bias so that the mean prediction is that of the targets (with bins: comes near to it)."""
        made: Tensor = self.layers(states.float())
        shift: Any = match_mean_histogram(made, self.bins.spread(targets)) if self.bins else (targets - made[..., 0]).mean()
        self.layers[-1].bias += shift


class ValueHead:
    """``passes``: gradient steps on all given targets each time. ``bins``: learn by classification into them."""

    def __init__(self, run: "RunContext", learning_rate: float, passes: int, bins: ValueBins | None = None) -> None:
        self.run, self.passes = run, passes
        self.net = ValueNet(run.model.config.get_text_config().hidden_size, run.seed, bins).to(run.device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=learning_rate)

    def read_states(self, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> Tensor:
        """(n, D): for each row, the states that the tokens at these places of its completion are predicted from, one row after the other."""
        rows = [[*prompt, *rest] for prompt, rest in zip(prompts, completions, strict=True)]
        before = [[len(prompt) - 1 + place for place in asked] for prompt, asked in zip(prompts, places, strict=True)]
        return read_hidden_states(self.run, rows, before)

    @torch.no_grad()
    def estimate(self, states: Tensor) -> Tensor:
        """(n, D) -> (n,)."""
        values: Tensor = self.net(states)
        return values

    def fit(self, states: Tensor, targets: Tensor) -> float:
        """(n, D), (n,); returns the mean squared error before the last step, 0 without targets.

        The mean of what is left is taken out at once, by the bias: steps of one size would spend themselves on it.
        """
        error, states, targets = 0.0, states.detach(), targets.detach().float()
        if len(targets):
            self.net.match_mean(states, targets)
        for _ in range(self.passes if len(targets) else 0):
            loss, values = self.net.compute_loss(states, targets)
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            error = nn.functional.mse_loss(values, targets).item()
        return error

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])


def explain_variance(values: Tensor, targets: Tensor) -> float:
    """(n,) each -> 1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 one that says the mean; 0 where all targets are equal."""
    spread = float(targets.var(correction=0)) if len(targets) else 0.0
    return 1.0 - float((targets - values).var(correction=0)) / spread if spread > 0 else 0.0
