"""ROSA: after each rejected answer the policy moves to a policy that gives it less, in one linearised step, for this conversation only (2509.23166).

Feedback r (+1 accepted, -1 rejected) on the answer y_k of turn k. At each of its T tokens
    pi*(v) = pi(v) exp(r 1[v = y_k] / beta) / Z
and the step Delta of the adapted parameters theta is damped least squares over all tokens of the answer, J = d pi / d theta:
    (J^T J + lambda I) Delta = J^T (pi* - pi),    theta <- theta + Delta
solved by conjugate gradient, which needs products of J and J^T with vectors alone: J^T w is a vector-Jacobian product, and J u is one of J^T w with
respect to w. theta starts at 0 and is forgotten when the conversation ends; no weight changes.

Our reading of the abstract and of a note on the paper: theta is the bias of the last layer (V,), which is added to the logits of every token. One
bias serves all tokens of an answer: of tags, which are near certain, J is near 0, so that the damping leaves them alone. The comparisons: ``update``
at "sgd" takes one gradient step on the cross-entropy to pi*, Delta = rate sum_t (pi*_t - pi_t); at "none" the policy is frozen. All three read the
network once a turn: the products of the conjugate gradient go through the softmax of T logits alone, not through the network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.policies.padded_batches import iterate_padded_batches
from trainers.worlds.interview_rejections import GUESSES

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node

MOST_ITERATIONS = 20


def tilt_target(pi: Tensor, chosen: Tensor, feedback: float, beta: float) -> Tensor:
    """pi (T, V), chosen tokens (T,) -> pi* (T, V), proportional to pi exp(r 1[v = y] / beta)."""
    shift = torch.zeros_like(pi).scatter(-1, chosen[:, None], feedback / beta)
    return torch.softmax(pi.log() + shift, -1)


@dataclass(frozen=True)
class Jacobian:
    """d f / d theta at ``theta`` (P,) by its products with vectors; ``value``: f(theta), any shape."""

    theta: Tensor
    value: Tensor
    weights: Tensor  # w, of the shape of ``value``
    pulled: Tensor  # J^T w (P,), as a function of w

    @classmethod
    def of(cls, function: Callable[[Tensor], Tensor], theta: Tensor) -> "Jacobian":
        with torch.enable_grad():
            at = theta.detach().requires_grad_()
            value = function(at)
            weights = torch.zeros_like(value, requires_grad=True)
            (pulled,) = torch.autograd.grad(value, at, weights, create_graph=True)
        return cls(at, value, weights, pulled)

    def pull(self, vector: Tensor) -> Tensor:
        """J^T v (P,)."""
        return torch.autograd.grad(self.value, self.theta, vector, retain_graph=True)[0]

    def push(self, direction: Tensor) -> Tensor:
        """J u, of the shape of ``value``: a vector-Jacobian product of w -> J^T w, which is linear."""
        return torch.autograd.grad(self.pulled, self.weights, direction, retain_graph=True)[0]


def solve_by_conjugate_gradient(product: Callable[[Tensor], Tensor], right: Tensor, iterations: int) -> tuple[Tensor, list[float]]:
    """x (P,) of A x = ``right`` (P,), A symmetric positive definite given as ``product``, from 0; and after each iteration, the zeroth included, the
    norm of the residual relative to that of ``right``. Stops early where nothing is left; x = 0 and no residuals for a right side of 0."""
    x, residual, direction = torch.zeros_like(right), right, right
    square = start = float(right @ right)
    found = [1.0] if start > 0 else []
    for _ in range(iterations):
        if square <= 1e-24 * start:
            break
        image = product(direction)
        step = square / float(direction @ image)
        x, residual = x + step * direction, residual - step * image
        before, square = square, float(residual @ residual)
        direction = residual + square / before * direction
        found.append((square / start) ** 0.5)
    return x, found


def solve_step(function: Callable[[Tensor], Tensor], theta: Tensor, target: Tensor, damping: float, iterations: int) -> tuple[Tensor, list[float]]:
    """Delta (P,) of (J^T J + lambda I) Delta = J^T (target - f(theta)), and the relative residuals of the solver."""
    jacobian = Jacobian.of(function, theta)
    right = jacobian.pull(target - jacobian.value.detach())
    return solve_by_conjugate_gradient(lambda u: jacobian.pull(jacobian.push(u)) + damping * u, right, iterations)


class Config(Strict):
    update: Literal["solve", "sgd", "none"] = param(
        "solve", "The linearised step, one gradient step of equal cost, or no adaptation (the frozen policy).", title="Update"
    )
    beta: float = param(1.0, "Temperature of the target: the feedback over it is the change of a logit.", title="β", gt=0, le=100)
    damping: float = param(1e-3, "Added to the diagonal of the normal equations (λ).", title="Damping", gt=0, le=10)
    iterations: int = param(5, "Of the conjugate gradient; 0: no step.", title="CG iterations", ge=0, le=MOST_ITERATIONS)
    rate: float = param(1.0, "Step size of update sgd.", title="SGD step size", advanced=True, gt=0, le=100)


def compute_step(config: Config, logits: Tensor, bias: Tensor, chosen: Tensor, feedback: float) -> tuple[Tensor, list[float]]:
    """Logits (T, V) of the answer's tokens (T,) without the bias (V,) -> Delta (V,) and the solver's relative residuals."""

    def read_policy(theta: Tensor) -> Tensor:
        return torch.softmax(logits + theta, -1)

    pi = read_policy(bias)
    target = tilt_target(pi, chosen, feedback, config.beta)
    if config.update == "solve":
        return solve_step(read_policy, bias, target, config.damping, config.iterations)
    return (config.rate * (target - pi).sum(0) if config.update == "sgd" else torch.zeros_like(bias)), []


class Rosa(Method):
    card = Card(
        name="rosa",
        title="Test-time policy adaptation from rejections",
        arxiv="2509.23166",
        system="T2PAM / ROSA",
        base="procedure",
        provenance="abstract",
        source="abstract, open reviews and a secondary note; no published code was found",
        fit="variant",
        idea="In a conversation, a rejected answer moves a few parameters towards a policy that gives it less, in one linearised step.",
        formula=(
            r"\pi^*(v) \propto \pi(v) \exp(r\,\mathbb{1}[v = y_k] / \beta)",
            r"(J^\top J + \lambda I)\,\Delta = J^\top (\pi^* - \pi), \qquad J = \partial \pi / \partial \theta",
            r"\theta \leftarrow \theta + \Delta",
        ),
        reading="That the target is made token by token, and the values of β, λ and the iterations.",
        departures=(
            "The adapted parameters are a bias of the last layer, in place of a low-rank adapter or an offset of hidden states.",
            "A rule of the world accepts or rejects answers, in place of a user.",
            "The policy is read at temperature 1, whatever it is sampled at.",
        ),
        claim=("procedure/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    worlds = frozenset({"interview"})
    requires = (Requirement("task.options.about", "equals", "rejections", "an answer has to be rejected, and another one may be given"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        """All conversations turn by turn, each with a bias of its own; they end without it."""
        episodes = session.begin()
        nodes = [episode.root for episode in episodes]
        for number in range(1, GUESSES + 1):
            nodes = session.play(nodes, turns=1)
            self.log(f"success_{number}", sum(node.finish != "" and session.is_right(node) for node in nodes) / len(nodes))
            self.adapt_biases(session, [node for node in nodes if not node.finish])
        for episode in episodes:
            episode.bias = None
        return session.finish(nodes)

    def adapt_biases(self, session: "Session", nodes: "Sequence[Node]") -> None:
        """Moves the bias of each conversation that goes on, whose last answer was therefore rejected."""
        for node, (logits, again, chosen) in zip(nodes, read_logits(session, nodes), strict=True):
            before = node.episode.bias
            bias = torch.zeros_like(logits[0]) if before is None else before
            delta, residuals = compute_step(self.config, logits, bias, chosen, -1.0)
            if self.config.update != "none":
                node.episode.bias = bias + delta
            frozen, repeat = (score_tokens(again + theta, chosen) for theta in (torch.zeros_like(bias), bias + delta))
            self.log("repeat", repeat)
            self.log("repeat_frozen", frozen)
            for number, residual in enumerate(residuals):
                self.log(f"residual_{number}", residual)
            target = tilt_target(torch.softmax(logits + bias, -1), chosen, -1.0, self.config.beta)
            turn = node.episode.turns(node)[-1][-1]
            probability = {"pi": score_tokens(logits + bias, chosen), "target": float(target.log().gather(1, chosen[:, None]).sum())}
            turn.facts = {**turn.facts, **probability, "repeat": repeat, "repeat_frozen": frozen}  # all log-probabilities of this answer, nats

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        turns = tuple(Series(f"{name}/success_{number}", f"after turn {number}") for number in range(1, GUESSES + 1))
        residuals = tuple(Series(f"{name}/residual_{number}", f"after iteration {number}") for number in range(1, MOST_ITERATIONS + 1))
        return (
            Panel("Conversations that have succeeded, by turn", turns),
            Panel(
                "Log-probability of repeating a rejected answer",
                (Series(f"{name}/repeat", "adapted"), Series(f"{name}/repeat_frozen", "same context, frozen policy", dashed=True)),
                unit="nats",
            ),
            Panel("Relative residual of the solver", residuals),
        )


def score_tokens(logits: Tensor, chosen: Tensor) -> float:
    """Log-probability (nats) of tokens (T,) by logits (T, V)."""
    return float(torch.log_softmax(logits, -1).gather(1, chosen[:, None]).sum())


@torch.no_grad()
def read_logits(session: "Session", nodes: "Sequence[Node]") -> list[tuple[Tensor, Tensor, Tensor]]:
    """Of each node, which the world wrote: logits (T, V) of the frozen policy at the tokens of the turn before it, at the same tokens said again
    after it, and the tokens (T,). In double precision on the processor, from one pass of the network a batch."""
    rows, found = list[tuple[list[int], int, list[int]]](), list[tuple[Tensor, Tensor, Tensor]]()
    for node in nodes:
        prompt, rest = node.episode.context_ids(node)
        said = [id_ for one in node.episode.turns(node)[-1] for id_ in one.ids]
        rows.append(([*prompt, *rest], len(prompt) + len(rest) - len(node.ids) - len(said), said))
    whole, size = [[*ids, *said] for ids, _, said in rows], session.engine.width
    for start, padded, mask in iterate_padded_batches(whole, size, session.run.tokenizer.pad_token_id, session.run.device):
        made = session.model(input_ids=padded, attention_mask=mask, use_cache=False).logits
        for row, (ids, first, said) in enumerate(rows[start : start + size]):
            here, again = (made[row, place - 1 : place - 1 + len(said)].double().cpu() for place in (first, len(ids)))
            found.append((here, again, torch.tensor(said)))
    return found
