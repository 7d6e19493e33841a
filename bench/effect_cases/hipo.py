"""A policy that only chooses whether to think: it pays on hard prompts, and is for nothing on easy ones."""

import torch

from bench.effect_cases import Case
from trainers.advantages import z_score
from trainers.methods.group.hipo import Config, choice_advantages

RIGHT = torch.tensor([[0.95, 0.95], [0.3, 0.9]])  # of easy and hard prompts, without and with thinking
GROUP, GROUPS, STEPS, LEARNING_RATE = 8, 16, 300, 0.1


def measure(seed: int) -> tuple[float, float]:
    return fit(seed, True), fit(seed, False)


def fit(seed: int, method: bool) -> float:
    """Probability of answering at once on an easy prompt minus that on a hard one."""
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
    easy, hard = torch.sigmoid(logits.detach()).tolist()
    return (1 - easy) - (1 - hard)


CASE = Case(
    method="hipo",
    parent="grpo",
    claim="the policy answers at once on easy prompts and thinks on hard ones",
    quantity="probability of answering at once, easy minus hard prompts",
    direction="higher",
    problem="policy of one choice on two kinds of prompts with given rates of right answers, 300 updates",
    measure=measure,
    launch={"base": "grpo"},
)
