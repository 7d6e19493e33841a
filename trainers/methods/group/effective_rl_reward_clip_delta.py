"""PR-Clip-Delta: step rewards that cannot be gained by repeating easy steps (arXiv 2410.15115).

q_1 … q_K score the steps of a completion; c is the reward so far (the outcome). Clip: q becomes min(q - eta, 0), so no step can add reward just by
existing. Delta: r_k = q_k - q_{k+1} for k < K - 1, q_k for k = K - 1 and 0 for k = K, so the sum telescopes to q_1. Clip-Delta applies Delta to the
clipped scores. The return at a step is a (r_k + … + r_K) + c; with Delta this is a q_k + c for k < K, and c for k = K, where an earlier summary has a
q_k too.

This is our interpretation of the abstract and a note that quotes the formulas; a and eta are our choices. The paper trains with PPO. Here, the
advantage of a token is its return (r_k is paid on the last token of step k, so tokens up to there include it) minus the group's mean, divided by the
group's standard deviation. Both statistics are taken over all tokens, with equal weight for every completion: with a = 0 this is GRPO's advantage.
Standardising each step reward before summing would make the advantage depend on length again. The lab has no trained step scorer. ``arithmetic``
gives 0.9 to any true equation and 0.1 to everything else; it can be exploited, as in the paper. ``solution`` gives 1 to steps of the task's own
solution; ``endpoint`` asks the worker's judge.
"""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.judges import step_judge
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.segments import assign_tokens_to_spans, find_step_spans, step_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

Shape = Literal["clip-delta", "clip", "delta", "sum"]


def clip_step_scores(scores: Tensor, eta: float) -> Tensor:
    """(K,) -> (K,), all at most 0."""
    return (scores - eta).clamp(max=0.0)


def compute_score_deltas(scores: Tensor) -> Tensor:
    """(K,) -> (K,): differences to the next step; the last score is not paid."""
    kept = scores[:-1]
    return torch.cat([kept[:-1] - kept[1:], kept[-1:], scores.new_zeros(min(1, len(scores)))])


def step_rewards(scores: Tensor, shape: Shape, eta: float) -> Tensor:
    """(K,) -> (K,)."""
    shaped = clip_step_scores(scores, eta) if "clip" in shape else scores
    return compute_score_deltas(shaped) if "delta" in shape else shaped


def compute_step_returns(rewards: Tensor, outcome: float, scale: float) -> Tensor:
    """(K,) -> (K + 1,): return from each step on, and after the last."""
    to_go = rewards.flip(0).cumsum(0).flip(0)
    return scale * torch.cat([to_go, rewards.new_zeros(1)]) + outcome


def spread_over_tokens(values: Tensor, places: list[int]) -> Tensor:
    """(K + 1,), T step indices -> (T,): each token gets the value of its own step, or of the next step that starts after it."""
    made, ahead = [0] * len(places), len(values) - 1
    for token in range(len(places) - 1, -1, -1):
        ahead = places[token] if places[token] >= 0 else ahead
        made[token] = ahead
    return values[torch.tensor(made, dtype=torch.long, device=values.device)]


def token_z_score(values: Tensor, mask: Tensor, group_size: int, epsilon: float = 1e-4) -> Tensor:
    """(B, T), (B, T) -> (B, T): standardised within the group over all tokens, with equal weight for every non-empty row; 0 where masked or where all
    are equal.
    """
    there = mask.any(1).view(-1, group_size).to(values.dtype)
    count = there.sum(1)

    def group_average(rows: Tensor) -> Tensor:
        mean = (rows.view(-1, group_size) * there).sum(1) / count.clamp(min=1)
        return mean.repeat_interleave(group_size)[:, None]  # (B, 1)

    centred = values - group_average(masked_row_mean(values, mask))
    bessel = (count / (count - 1).clamp(min=1)).repeat_interleave(group_size)[:, None]
    deviation = (group_average(masked_row_mean(centred**2, mask)) * bessel).sqrt()
    highest = values.masked_fill(mask == 0, -float("inf")).amax(1).view(-1, group_size).amax(1).repeat_interleave(group_size)[:, None]
    lowest = values.masked_fill(mask == 0, float("inf")).amin(1).view(-1, group_size).amin(1).repeat_interleave(group_size)[:, None]
    return (centred / (deviation + epsilon)).masked_fill((highest <= lowest) | (mask == 0), 0.0)


class Config(Strict):
    shape: Shape = param("clip-delta", "Transformation of the step scores; sum is the unmodified variant that the method fixes.")
    scale: float = param(
        0.5, "Weight of the step rewards relative to the outcome; 0 is GRPO. The paper's value is unknown.", title="Weight (a)", ge=0, le=10
    )
    eta: float = param(0.5, "After clipping, scores above this add nothing. The paper's value is unknown.", title="Threshold (eta)", ge=0, le=1)
    scorer: Literal["solution", "arithmetic", "endpoint"] = param(
        "solution", "Source of the step scores: the task's solution, any true equation, or a judge."
    )


class ClipDelta(Method):
    card = Card(
        name="effective-rl-reward-clip-delta",
        title="Clipped and telescoping step rewards",
        arxiv="2410.15115",
        system="PR-Clip-Delta",
        base="grpo",
        provenance="abstract",
        source="abstract; a note that quotes the formulas; open reviews",
        fit="core",
        idea="Let step scores only subtract reward and make them telescope, so that repeating a safe step never pays.",
        formula=(
            r"\tilde q_k = \min(q_k - \eta, 0)",
            r"r_k = \tilde q_k - \tilde q_{k+1} \quad (k < K - 1), \qquad r_{K-1} = \tilde q_{K-1}, \qquad r_K = 0",
            r"G_k = \alpha \sum_{j \ge k} r_j + c",
        ),
        reading="a, eta and the computation of advantages from returns are our choices; the paper uses PPO",
        departures=(
            "The paper trains with PPO; here, returns are standardised within the group.",
            "There is no trained scorer: the task's solution, true equations or a judge score steps.",
        ),
        claim=("completions/mean_length", "lower"),
    )
    Config = Config
    roles = {"advantages": "makes"}
    owns = frozenset({"advantages"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        if self.config.scorer == "endpoint":
            step_judge.require_judge(run.judge, self.card.name)

    def scores(self, batch: "RolloutBatch") -> list[list[float]]:
        found = [step_texts(text) for text in batch.texts]
        self.log("steps", sum(map(len, found)) / len(found))
        self.log("repeated", sum(len(own) - len(set(own)) for own in found) / max(1, sum(map(len, found))))
        if self.config.scorer == "arithmetic":
            return [[0.9 if step_judge.true_equation(step) else 0.1 for step in own] for own in found]
        if self.config.scorer == "endpoint":
            return step_judge.ask_step_verdicts(step_judge.require_judge(self.run.judge, self.card.name), batch.examples, found)
        return [step_judge.score_steps_by_rule(self.run.task, example, own) for example, own in zip(batch.examples, found, strict=True)]

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        config, values = self.config, torch.zeros_like(batch.mask)
        outcomes, totals = batch.shaped.tolist(), list[float]()
        for row, scores in enumerate(self.scores(batch)):
            shaped = step_rewards(torch.tensor(scores), config.shape, config.eta)
            own = compute_step_returns(shaped, outcomes[row], config.scale)
            places = assign_tokens_to_spans(batch.ends[row], find_step_spans(batch.texts[row]))
            values[row, : len(places)] = spread_over_tokens(own, places)[: values.shape[1]].to(values)
            totals.append(float(shaped.sum()))
            if scores:
                self.log("score", sum(scores) / len(scores))
        self.log("process", sum(totals) / len(totals))
        self.log("outcome", batch.shaped.mean())
        return token_z_score(values, batch.mask, batch.group_size)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Step scores and rewards",
                (
                    Series(f"{name}/score", "score per step"),
                    Series(f"{name}/process", "step rewards per completion"),
                    Series(f"{name}/outcome", "outcome", dashed=True),
                ),
            ),
            Panel(
                "Reward farming",
                (Series(f"{name}/steps", "steps per completion"), Series(f"{name}/repeated", "share of repeated steps", dashed=True)),
                help="A plain sum of scores rewards every step, needed or not.",
            ),
        )
