"""One linearised step after each rejection against the frozen policy and against one gradient step, in the same conversations."""

from typing import Any

from bench import procedure_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens

TASK = {"name": "interview", "difficulty": "medium", "options": {"about": "rejections"}}
SETTINGS: dict[str, Any] = {
    "task": TASK,
    "steps": 2,
    "every": 1,
    "heldout": 256,
    "training__per_device_train_batch_size": 32,
    "training__num_generations": 4,
    "training__max_completion_length": 64,
}
REPEAT = "heldout/rosa/repeat"


def measure(seed: int) -> Pairs:
    own, frozen, gradient = (procedure_runs.run_rounds(seed, "rosa", {"update": update}, **SETTINGS) for update in ("solve", "none", "sgd"))
    return {
        "repeat": (own.final(REPEAT), frozen.final(REPEAT)),
        **tiny.accuracies(own, frozen),
        **compare_at_policy_tokens(own, frozen, procedure_runs.WRITTEN),
        "against a gradient step": (own.final("heldout/accuracy"), gradient.final("heldout/accuracy")),
    }


CASE = Case(
    method="rosa",
    parent="procedure",
    claim="A rejected answer is repeated less, and more conversations succeed within five turns than with the frozen policy or one gradient step.",
    quantities=(
        Quantity(
            "repeat",
            "log-probability of repeating the answer that was just rejected, held-out conversations (nats)",
            "lower",
            0.1,
            "a tenth less probable",
            by_construction="the step moves to a policy that gives the answer less",
        ),
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
        Quantity(
            "against a gradient step",
            "held-out accuracy, the parent taking one gradient step after each rejection",
            "higher",
            0.02,
            "two more of a hundred conversations",
        ),
    ),
    problem="guesses that are rejected until one is right in the world interview, frozen tiny policy, five turns",
    measure=measure,
    seeds=3,
)
