"""A policy that may write safe true equations for ever and a scorer that gives each of them 0.9: Clip-Delta against the plain sum of the scores."""

import torch
from torch.nn.functional import logsigmoid

from bench.effect_cases import Case, Pairs, Quantity
from bench.equal_tokens import Curve, values_at_equal_tokens
from trainers.methods.group.effective_rl_reward_clip_delta import Config, compute_step_returns, step_rewards, token_z_score

SCORE, MOST, GROUP, GROUPS, STEPS, LEARNING_RATE = 0.9, 20, 8, 8, 200, 1.0


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "clip-delta"), trained(seed, "sum")
    return {
        "safe equations": (own[0], parent[0]),
        "accuracy": (own[1][-1][1], parent[1][-1][1]),
        "accuracy at tokens": values_at_equal_tokens(own[1], parent[1]),
    }


def trained(seed: int, shape: str) -> tuple[float, Curve]:
    """Expected number of safe equations that the trained policy writes before it answers, and how often it is right by what it has written."""
    generator, config = torch.Generator().manual_seed(seed), Config()
    go_on, right = torch.tensor(0.0, requires_grad=True), torch.tensor(0.0, requires_grad=True)
    curve, written = [(0.0, 0.5)], 0.0
    worth = [compute_step_returns(step_rewards(torch.full((count,), SCORE), shape, config.eta), 0.0, config.scale) for count in range(MOST + 1)]
    for _ in range(STEPS):
        going = torch.rand(GROUP * GROUPS, MOST, generator=generator) < torch.sigmoid(go_on.detach())
        counts = going.int().cumprod(1).sum(1)  # equations of each answer; its last token answers
        outcomes = (torch.rand(GROUP * GROUPS, generator=generator) < torch.sigmoid(right.detach())).float()
        places = torch.arange(MOST + 1)
        mask = (places <= counts[:, None]).float()
        values = torch.zeros_like(mask)
        for row, count in enumerate(counts.tolist()):
            values[row, : count + 1] = worth[count] + outcomes[row]
        advantage = token_z_score(values, mask, GROUP)
        stopping = torch.where(counts < MOST, logsigmoid(-go_on), 0.0) + logsigmoid(torch.where(outcomes > 0, right, -right))
        chosen = torch.where(places == counts[:, None], stopping[:, None], logsigmoid(go_on))
        gain = (advantage * chosen * mask).sum(1).mean()
        slopes = torch.autograd.grad(gain, (go_on, right))
        go_on, right = [(value + LEARNING_RATE * slope).detach().requires_grad_() for value, slope in zip((go_on, right), slopes, strict=True)]
        written += float((counts + 1).sum())
        curve.append((written, float(torch.sigmoid(right.detach()))))
    chance = torch.sigmoid(go_on.detach())
    return float(sum(chance**count for count in range(1, MOST + 1))), curve


CASE = Case(
    method="effective-rl-reward-clip-delta",
    parent="grpo",
    claim="the policy does not write safe equations for their score, as it does under the plain sum of step scores",
    quantities=(
        Quantity(
            "safe equations",
            "expected number of safe equations before the answer, 20 at most",
            "lower",
            1.0,
            "one equation of 20",
            by_construction="the reward no longer pays for what is counted",
        ),
        Quantity("accuracy", "probability of a right answer after 200 updates", "higher", 0.01, "one more of a hundred answers"),
        Quantity(
            "accuracy at tokens",
            "probability of a right answer after as many equations and answers written",
            "higher",
            0.01,
            "one more of a hundred answers",
        ),
    ),
    problem="policy that goes on or answers, every equation scored 0.9, 200 updates",
    measure=measure,
    launch={"base": "grpo"},
)
