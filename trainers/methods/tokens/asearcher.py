"""ASearcher: rollouts by weights that are some updates old, corrected by a decoupled ratio (arXiv 2508.07976; AReaL, arXiv 2505.24298).

Rollouts never wait for the trainer: each group is sampled by the weights of an earlier update, at most ``delay`` old, and no older one is admitted.
With lp_behav of the weights that sampled, lp_prox recomputed with those before the update, and lp of the policy,
    b = exp(lp_prox - lp_behav),  r = exp(lp - lp_prox),  L = -1[b <= cap] b min(r A, clip(r) A),  A_i = R_i - mean_j R_j,
averaged over all tokens, those beyond the cap included; groups whose advantages are all 0 are left out of the loss. b is a constant and not negative,
so it is a weight on the advantages of the base's clipped loss. With ``ratio`` plain, r = exp(lp - lp_behav) and b = 1: what the decoupled ratio is
compared with. Without delay b = 1, up to how the sampler rounds.

Here one process samples and trains in turns; the delay is made by keeping earlier weights, and the age of a group is drawn evenly. It differs from
GRPO in who samples, in the weights of tokens and in advantages without a standard deviation. The weights of ``delay`` updates are in memory and in
every checkpoint.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import centre_by_group
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion

OLDEST = 16
Weights = dict[str, Tensor]


def weigh_stale_tokens(proximal: Tensor, behaviour: Tensor, cap: float) -> Tensor:
    """(B, T), (B, T) -> (B, T): b = exp(lp_prox - lp_behav), 0 where it is above the cap."""
    weights = torch.exp(proximal - behaviour)
    return torch.where(weights <= cap, weights, torch.zeros_like(weights))


def pad_rows(rows: Sequence[Sequence[float]], like: Tensor) -> Tensor:
    """B rows of numbers -> (B, T) as ``like``, with zeros after each."""
    made = torch.zeros_like(like)
    for place, row in enumerate(rows):
        made[place, : len(row)] = torch.tensor(row, dtype=like.dtype, device=like.device)
    return made


@contextmanager
def lend_weights(model: Any, weights: Weights) -> Iterator[None]:
    """Inside, the model has other values of the parameters named; afterwards its own, to the bit."""
    own = {name: value for name, value in model.named_parameters() if name in weights}
    before = copy_weights(own)
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(weights[name])
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(before[name])


def copy_weights(weights: Weights) -> Weights:
    return {name: value.detach().clone() for name, value in weights.items()}


class Config(Strict):
    delay: int = param(4, "Updates that the weights which sample may be behind.", title="Largest delay", ge=0, le=OLDEST)
    cap: float = param(5.0, "Tokens whose weight b is above this get no gradient.", title="Cap", ge=1, le=1000)
    ratio: Literal["decoupled", "plain"] = param(
        "decoupled", "decoupled: the ratio to the weights before the update, weighted by b. plain: the ratio to the weights that sampled."
    )


class ASearcher(Method):
    card = Card(
        name="asearcher",
        title="Decoupled ratio for old rollouts",
        arxiv="2508.07976",
        system="ASearcher",
        base="grpo",
        provenance="code",
        source="github inclusionAI/ASearcher: AReaL/ASearcher/train/asearcher.py, configs, AReaL/areal/utils/functional.py",
        fit="needs-environment",
        idea="Let rollouts be some updates old, and correct for it apart from the clip that bounds the update.",
        formula=(
            r"b = \frac{\pi_{prox}}{\pi_{behav}}, \quad r = \frac{\pi_\theta}{\pi_{prox}}",
            r"L = -1[b \le c]\; b\, \min\left(r A,\, \mathrm{clip}(r, 1 - \epsilon, 1 + \epsilon) A\right), \quad A_i = R_i - \mathrm{mean}_j R_j",
        ),
        departures=(
            "One process samples and trains in turns; the delay comes from weights that are kept.",
            "Rewards are the run's, without the authors' scale of 10 and the judge's penalty for invalid questions.",
            "The clip range is the run's; the authors use 0.4.",
            "The agent that writes questions is not implemented.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"rollout", "advantages", "log ratio"})
    requires = (Requirement("training.generation", "equals", "transformers", "another sampler has the newest weights only"),)

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.past: list[tuple[int, Weights]] = []  # (step that they were about to make, weights), oldest first

    def rollout(self, session: "Session") -> "list[Completion]":
        self.remember(session)
        size, count = session.group_size, len(session.examples)
        drawn = [session.rng.randrange(len(self.past)) for _ in range(0, count, size)]
        made: dict[int, Completion] = {}
        for version in sorted(set(drawn)):
            step, weights = self.past[version]
            rows = [row for row in range(count) if drawn[row // size] == version]
            with lend_weights(session.model, weights):
                answers = session.complete([session.prompts[row] for row in rows], [session.examples[row] for row in rows])
            for row, one in zip(rows, answers, strict=True):
                one.notes.update(age=session.step - step, behaviour=list(one.logprobs))
                made[row] = one
        return [made[row] for row in range(count)]

    def remember(self, session: "Session") -> None:
        """Keeps the weights as they are now, once a step, and forgets those that are too old."""
        if not self.past or self.past[-1][0] != session.step:
            now = {name: value for name, value in session.model.named_parameters() if value.requires_grad}
            self.past.append((session.step, copy_weights(now)))
        self.past = [(step, weights) for step, weights in self.past if session.step - step <= self.config.delay]

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        made = centre_by_group(batch.shaped, batch.group_size)
        flat = (batch.grouped(made) == 0).all(1).repeat_interleave(batch.group_size)
        batch.leave_out(flat, "all of its group got the same reward (asearcher)")
        ages = torch.tensor([note["age"] for note in batch.notes], dtype=torch.float32)
        self.log("age", ages.mean())
        for age in range(self.config.delay + 1):
            self.log(f"age/{age:02d}", (ages == age).float().mean())
        self.log("dropped", flat.float().mean())
        return made

    def token_weights(self, batch: "LossBatch") -> Tensor | None:
        behaviour = self.read_behaviour(batch)
        distance = (batch.old_logprobs.detach() - behaviour) * batch.mask
        weights = weigh_stale_tokens(distance, torch.zeros_like(distance), self.config.cap)
        self.log("capped", masked_mean((weights == 0).float(), batch.mask))
        self.log("distance", masked_mean(distance.abs(), batch.mask))
        return weights if self.config.ratio == "decoupled" else None

    def log_ratios(self, batch: "LossBatch") -> Tensor | None:
        return batch.logprobs - self.read_behaviour(batch) if self.config.ratio == "plain" else None

    def read_behaviour(self, batch: "LossBatch") -> Tensor:
        """(B, T): log-probabilities of the weights that sampled, 0 where the policy wrote nothing."""
        return pad_rows([note["behaviour"] for note in batch.of(batch.rollout.notes)], batch.logprobs.detach()) * batch.mask

    def state(self) -> dict[str, Any]:
        return {"past": [(step, dict(weights)) for step, weights in self.past]}

    def restore(self, state: dict[str, Any]) -> None:
        self.past = [(step, dict(weights)) for step, weights in state["past"]]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel("Age of rollouts", tuple(Series(f"asearcher/age/{age:02d}", f"{age} updates") for age in range(5)), "stack"),
            Panel(
                "Tokens and groups left out",
                (Series("asearcher/capped", "tokens above the cap"), Series("asearcher/dropped", "completions of groups with equal rewards")),
            ),
            Panel("Distance to the weights that sampled", (Series("asearcher/distance"),), unit="nats a token"),
        )
