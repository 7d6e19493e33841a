"""GRPO-MA: how much a thought's advantage depends on the luck of its answers. Four thoughts of fixed worth, answers drawn again and again."""

import torch

from bench.effect_cases import Case, Pairs, Quantity
from bench.equal_tokens import Curve, values_at_equal_tokens
from trainers.methods.group.grpo_ma import segment_advantages

THOUGHTS, DRAWS = 4, 4000
GROUPS, STEPS, LEARNING_RATE = 8, 300, 0.2  # of a policy that chooses among the thoughts


def variance(seed: int, answers: int) -> float:
    """Mean over the thoughts of the variance of their advantage."""
    generator = torch.Generator().manual_seed(seed)
    worth = torch.rand(THOUGHTS, generator=generator)  # probability that an answer to the thought is right
    rewards = (torch.rand(DRAWS, THOUGHTS, answers, generator=generator) < worth[:, None]).float()
    advantages, _ = segment_advantages(rewards.flatten(), THOUGHTS * answers, answers)
    return float(advantages.view(DRAWS, THOUGHTS, answers)[..., 0].var(0).mean())


def learning(seed: int, answers: int) -> Curve:
    """Expected worth of the thought that a softmax policy chooses, by answers drawn."""
    generator = torch.Generator().manual_seed(seed)
    worth, logits = torch.rand(THOUGHTS, generator=generator), torch.zeros(THOUGHTS)
    curve = [(0.0, float(worth.mean()))]
    for step in range(1, STEPS + 1):
        odds = torch.softmax(logits, 0)
        chosen = torch.multinomial(odds, GROUPS * THOUGHTS, replacement=True, generator=generator)
        rewards = (torch.rand(len(chosen), answers, generator=generator) < worth[chosen, None]).float()
        advantages, _ = segment_advantages(rewards.flatten(), THOUGHTS * answers, answers)
        of_thought = advantages.view(len(chosen), answers)[:, 0]
        gradient = torch.zeros(THOUGHTS).index_add_(0, chosen, of_thought) - odds * of_thought.sum()
        logits = logits + LEARNING_RATE * gradient / len(chosen)
        curve.append((float(step * rewards.numel()), float(torch.softmax(logits, 0) @ worth)))
    return curve


def measure(seed: int) -> Pairs:
    own, parent = learning(seed, 4), learning(seed, 1)
    return {
        "variance": (variance(seed, 4), variance(seed, 1)),
        "worth": (own[-1][1], parent[-1][1]),
        "worth at answers": values_at_equal_tokens(own, parent),
    }


CASE = Case(
    method="grpo-ma",
    parent="grpo",
    claim="with 4 answers to a thought its advantage varies less than with 1",
    quantities=(
        Quantity(
            "variance",
            "variance of a thought's advantage over redrawn answers",
            "lower",
            0.05,
            "a tenth of the variance without the method",
            by_construction="it averages four answers to a thought where the parent has one",
        ),
        Quantity("worth", "expected worth of a thought after 300 updates", "higher", 0.01, "one more of a hundred answers"),
        Quantity("worth at answers", "expected worth of a thought after as many answers", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="4 thoughts of fixed random worth, 4,000 redraws",
    measure=measure,
    launch={"base": "grpo"},
)
