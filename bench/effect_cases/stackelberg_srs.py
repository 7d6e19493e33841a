"""SRS on a categorical policy: the true utility of the policy that follows the shaped reward, in closed form."""

import torch

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.group.stackelberg_srs import Config, compute_reward_bounds, soft_threshold, solve_utility_threshold

ANSWERS, PROMPTS, SAMPLES = 30, 200, 10  # of a prompt; prompts; base samples that the threshold is estimated from


def measure(seed: int) -> Pairs:
    config, generator = Config(), torch.Generator().manual_seed(seed)
    utility = torch.rand(PROMPTS, ANSWERS, generator=generator)  # in [0, 1], so the linear reward has the same bound
    base = (torch.randn(PROMPTS, ANSWERS, generator=generator) - 2.0 * utility).log_softmax(1)  # biased against what is good
    drawn = torch.multinomial(base.exp(), SAMPLES, replacement=True, generator=generator)
    samples = utility.gather(1, drawn)
    bound = compute_reward_bounds(samples, config.bound)
    cut = solve_utility_threshold(samples, config.log_ratios(bound))
    own, parent = soft_threshold(utility, cut, bound, config.sharpness), config.bound * utility
    return {"utility": (earned(base, own, utility), earned(base, parent, utility))}


def earned(base: torch.Tensor, reward: torch.Tensor, utility: torch.Tensor) -> float:
    """Mean utility of the policy that maximises ``reward`` (N, M) under the KL penalty."""
    follower = (base + reward / Config().beta).softmax(1)
    return float((follower * utility).sum(1).mean())


CASE = Case(
    method="stackelberg-srs",
    parent="grpo",
    claim="Under the same bound and KL weight, the policy that follows the soft threshold earns more true utility than one that follows the reward.",
    quantities=(Quantity("utility", "mean true utility", "higher", 0.02, "two hundredths of the range of utilities"),),
    problem="200 categorical policies over 30 answers with a biased base, closed form, threshold from 10 samples",
    measure=measure,
    launch={"base": "grpo"},
)
