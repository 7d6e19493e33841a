"""Tool-Light on sums and products with a calculator: its two stages against DPO on right and wrong episodes, for as many steps."""

from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH: dict[str, Any] = {
    "trainer": "dpo",
    "task": {"name": "sums", "difficulty": "easy", "options": {"faults": 0.3}},  # wrong episodes with calls are needed
    "training__max_completion_length": 48,
    "training__max_length": 96,
}
DATA = {"training__sampled_prompts": 400}
CONFIG = {"prompts": 200, "filter": False, "easy": 0.5}
STEPS = 30  # of a stage


def keep_first_stage(seed: int) -> dict[str, Any]:
    """The policy that the second stage starts from."""
    spec = tiny.spec_of(seed, "tool-light", CONFIG, steps=STEPS, heldout=0, **LAUNCH, **DATA)
    return {"kind": "folder", "path": str(kept_runs.keep_policy(f"tool-light-{seed}", spec))}


def measure_difference(seed: int, guide: str) -> float:
    """Share of different leaves among the branches of the first stage."""
    made = tiny.run_train(seed, "tool-light", {**CONFIG, "guide": guide, "samples": 4}, steps=1, heldout=0, **LAUNCH, **DATA)
    return made.steps[0]["tool-light/different"]


def measure(seed: int) -> Pairs:
    policy = keep_first_stage(seed)
    own = tiny.run_train(seed, "tool-light", {**CONFIG, "stage": "evolved"}, steps=STEPS, policy=policy, **LAUNCH, **DATA)
    parent = tiny.run_train(seed, steps=2 * STEPS, **LAUNCH, **DATA)
    return {
        "called": (own.final("heldout/called"), parent.final("heldout/called")),
        **tiny.accuracies(own, parent),
        "different leaves": (measure_difference(seed, "entropy"), measure_difference(seed, "random")),
    }


CASE = Case(
    method="tool-light",
    parent="dpo",
    claim="after both stages calls go to the products and not to the sums, at no loss of right answers; branches guided by entropy differ more",
    quantities=(
        Quantity(
            "called",
            "share of held-out prompts with a call for a product, or without one for a sum",
            "higher",
            0.02,
            "two more of a hundred prompts",
            by_construction="right episodes with few calls are chosen, and of hard questions long ones",
        ),
        tiny.ACCURACY,
        Quantity(
            "different leaves",
            "share of different leaves among the branches; the parent's branches leave at random",
            "higher",
            0.02,
            "two more of a hundred branches",
        ),
    ),
    problem="one-digit sums and two-digit products with a calculator that fails in three calls of ten, tiny policy,"
    f" twice {STEPS} steps against {2 * STEPS}",
    measure=measure,
    seeds=3,
    changed="the calculator fails at times: without faults hardly an episode was wrong after more calls than a right one; branches leave whole steps",
    launch={**LAUNCH, "config": CONFIG},
)
