"""Word problems with a group as a tree that is hotter the deeper it is, against groups of independent rollouts."""

from typing import Any

from bench import policy_tokens
from bench.effect_cases import Case, Pairs, Quantity, tiny

CONFIG = {"segment": 6}  # answers have some 30 tokens
LAUNCH: dict[str, Any] = {"base": "grpo", "config": CONFIG}
TOKENS = "dynamic-treerpo/tokens"


def count_tokens_per_leaf(made: tiny.Trained) -> float:
    """Tokens that were sampled for each different answer of a group, over the whole run."""
    different = {(rollout["step"], rollout["group"], rollout["text"]) for rollout in made.rollouts}
    return sum(policy_tokens.count_step_tokens(made, TOKENS)) / len(different)


def measure(seed: int) -> Pairs:
    own = tiny.run_train(seed, "dynamic-treerpo", CONFIG, base="grpo")
    even = tiny.run_train(seed, "dynamic-treerpo", {**CONFIG, "rise": 0.0}, base="grpo")
    parent = tiny.run_train(seed, base="grpo")
    return {
        **policy_tokens.compare_at_policy_tokens(own, parent, TOKENS),
        **tiny.accuracies(own, parent),
        "tokens per leaf": (count_tokens_per_leaf(own), count_tokens_per_leaf(parent)),
        "against even noise": (own.final("heldout/accuracy"), even.final("heldout/accuracy")),
    }


CASE = Case(
    method="dynamic-treerpo",
    parent="grpo",
    claim="A tree has as many leaves for fewer sampled tokens, and after as many tokens more held-out problems are solved.",
    quantities=(
        policy_tokens.ACCURACY_AT_POLICY_TOKENS,
        tiny.ACCURACY,
        Quantity(
            "tokens per leaf",
            "tokens sampled for each different answer of a group, mean of the run",
            "lower",
            2.0,
            "two tokens of thirty",
            by_construction="branches share the tokens before they split",
        ),
        Quantity(
            "against even noise",
            "held-out accuracy after 40 steps, the parent with the same tree at one temperature",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="word problems, tiny policy, 40 steps, trees of two splits",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
