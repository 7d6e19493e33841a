"""Learning curves over the tokens that the policy has generated, for methods that sample more than they train on."""

from itertools import accumulate

from bench.effect_cases import Pairs, Quantity
from bench.effect_cases.tiny import Trained
from bench.equal_tokens import Curve, values_at_equal_tokens

ACCURACY_AT_POLICY_TOKENS = Quantity(
    "accuracy at policy tokens",
    "held-out accuracy after the policy has generated as many tokens, what is sampled and dropped included",
    "higher",
    0.02,
    "two more of a hundred episodes",
)


def count_step_tokens(made: Trained, metric: str = "") -> list[float]:
    """Tokens that the policy generated in each step: ``metric`` where the method reports them, else those of the step's rollouts."""
    if metric and all(metric in step for step in made.steps):
        return [step[metric] for step in made.steps]
    counts = [0.0] * len(made.steps)
    for rollout in made.rollouts:
        counts[rollout["step"] - 1] += rollout["length"] or 0
    return counts


def trace_heldout(made: Trained, name: str, metric: str = "") -> Curve:
    """A held-out metric by the tokens that the policy had generated until then."""
    tokens = [0.0, *accumulate(count_step_tokens(made, metric))]
    return [(tokens[step], values[name]) for step, values in sorted(made.heldout.items())]


def compare_at_policy_tokens(own: Trained, parent: Trained, metric: str = "", name: str = "heldout/accuracy") -> Pairs:
    values = values_at_equal_tokens(trace_heldout(own, name, metric), trace_heldout(parent, name, metric))
    return {ACCURACY_AT_POLICY_TOKENS.name: values}
