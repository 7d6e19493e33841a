"""A value head: what is expected from a place in an episode, read from the policy's last layer there.

V(s) = w tanh(W norm(h_s)),  h_s (D,): the state from which the next token is predicted

The head has an optimiser of its own and learns by squared error to given targets. No gradient of it reaches the policy, so that the policy's loss
stays the method's. It starts at V = 0 everywhere. For methods whose rollouts are short of a critic: generalised advantages, values of search nodes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainers.policies.hidden_states import read_hidden_states

if TYPE_CHECKING:
    from trainers.methods.context import RunContext

WIDTH = 64  # of the hidden layer


class ValueNet(nn.Module):
    """(..., D) states -> (...) values."""

    def __init__(self, size: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        for parameter in self.layers[-1].parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: Tensor) -> Tensor:
        values: Tensor = self.layers(states.float())[..., 0]
        return values


class ValueHead:
    """``passes``: gradient steps on all given targets each time."""

    def __init__(self, run: "RunContext", learning_rate: float, passes: int) -> None:
        self.run, self.passes = run, passes
        self.net = ValueNet(run.model.config.get_text_config().hidden_size, run.seed).to(run.device)
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
        error = 0.0
        if len(targets):
            with torch.no_grad():
                self.net.layers[-1].bias += (targets.float() - self.net(states)).mean()
        for _ in range(self.passes if len(targets) else 0):
            loss = nn.functional.mse_loss(self.net(states.detach()), targets.detach().float())
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            error = loss.item()
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
