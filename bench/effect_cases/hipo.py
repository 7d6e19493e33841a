"""A policy that only chooses whether to think: it pays on hard prompts, and is for nothing on easy ones."""

import torch

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.maths.advantages import z_score
from trainers.methods.group.hipo import Config, choice_advantages

RIGHT = torch.tensor([[0.95, 0.95], [0.3, 0.9]])  # of easy and hard prompts, without and with thinking
GROUP, GROUPS, STEPS, LEARNING_RATE = 8, 16, 300, 0.1


def measure(seed: int) -> Pairs:
    return paired(trained(seed, True), trained(seed, False))


def trained(seed: int, method: bool) -> dict[str, float]:
    """Probability of answering at once on an easy prompt minus that on a hard one, and the expected share of right answers."""
    generator, config = torch.Generator().manual_seed(seed), Config()
    logits = torch.zeros(2, requires_grad=True)  # of thinking, on easy and on hard prompts
    for _ in range(STEPS):
        kinds = torch.arange(2).repeat_interleave(GROUP * GROUPS)
        thinks = torch.rand(len(kinds), generator=generator) < torch.sigmoid(logits.detach())[kinds]
        rewards = (torch.rand(len(kinds), generator=generator) < RIGHT[kinds, thinks.long()]).float() + config.format_weight
        advantage = choice_advantages(rewards, thinks, GROUP, config.omega, config.gamma) if method else z_score(rewards, GROUP)
        chosen = torch.nn.functional.logsigmoid(torch.where(thinks, logits[kinds], -logits[kinds]))
        (slope,) = torch.autograd.grad((advantage * chosen).view(2, -1).mean(1).sum(), logits)
        logits = (logits + LEARNING_RATE * slope).detach().requires_grad_()
    thinking = torch.sigmoid(logits.detach())
    right = RIGHT[:, 0] + thinking * (RIGHT[:, 1] - RIGHT[:, 0])
    return {"difference": float(thinking[1] - thinking[0]), "accuracy": float(right.mean())}


CASE = Case(
    method="hipo",
    parent="grpo",
    claim="the policy answers at once on easy prompts and thinks on hard ones",
    quantities=(
        Quantity(
            "difference",
            "probability of answering at once, easy minus hard prompts",
            "higher",
            0.05,
            "five of a hundred prompts",
            by_construction="the advantage compares the two ways of answering within a group and pays for the shorter one where both are right",
        ),
        Quantity("accuracy", "expected share of right answers on both kinds of prompts", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="policy of one choice on two kinds of prompts with given rates of right answers, 300 updates",
    measure=measure,
    launch={"base": "grpo"},
)
