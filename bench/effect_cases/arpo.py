"""Groups that fork after a tool's answer against groups of whole rollouts, on questions of which half need a second look."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.equal_tokens import Curve, values_at_equal_tokens

OPTIONS = {"ambiguous": 0.5}
MEMBERS = 64  # completions a step
CONFIG = {"initial": 4, "weight": 1.0}  # turns of the tiny policy have 5 tokens, not 20: with w = 0.2 nothing moves
RANDOM = {"initial": 4, "weight": 0.0}


def count_calls(made: tiny.Trained) -> dict[int, float]:
    """Step -> tool calls that were made for its batch; those that branches share were made once."""
    counted = dict[int, float]()
    for rollout in made.rollouts:
        counted[rollout["step"]] = counted.get(rollout["step"], 0.0) + rollout["text"].count("</information>")
    return {step: made.steps[place].get("arpo/calls", counted[step] / MEMBERS) * MEMBERS for place, step in enumerate(sorted(counted))}


def curve_by_calls(made: tiny.Trained) -> Curve:
    calls = count_calls(made)
    return [(sum(count for at, count in calls.items() if at <= step), values["heldout/accuracy"]) for step, values in sorted(made.heldout.items())]


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "arpo", CONFIG, OPTIONS)
    parent = search_runs.run_search(seed, options=OPTIONS)
    at_random = search_runs.run_search(seed, "arpo", RANDOM, OPTIONS)
    calls = [sum(count_calls(made).values()) / len(made.rollouts) for made in (own, parent)]
    return {
        "accuracy at calls": values_at_equal_tokens(curve_by_calls(own), curve_by_calls(parent)),
        **tiny.accuracies(own, parent),
        "calls": (calls[0], calls[1]),
        "against branches at random": (own.final("heldout/accuracy"), at_random.final("heldout/accuracy")),
    }


CASE = Case(
    method="arpo",
    parent="grpo",
    claim="Forking where the entropy rises reaches the held-out accuracy of independent rollouts with fewer tool calls.",
    quantities=(
        Quantity(
            "accuracy at calls", "held-out accuracy after as many tool calls made for training", "higher", 0.02, "two more of a hundred problems"
        ),
        tiny.ACCURACY,
        Quantity(
            "calls",
            "tool calls made for a rollout, those of shared turns once",
            "lower",
            0.1,
            "a tenth of a call",
            by_construction="half of each group begins inside another rollout and shares its calls",
        ),
        Quantity(
            "against branches at random",
            "held-out accuracy after 60 steps, the parent forking with the same base probability wherever a tool has answered",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="chained questions in the world search, half of them ambiguous, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "config": CONFIG,
        "task": {"name": "search", "difficulty": "easy", "options": OPTIONS},
        "training__max_completion_length": 96,
    },
)
