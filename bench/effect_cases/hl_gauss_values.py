"""A critic by classification against the same critic by squared error: calibration on noisy labels, then what is solved with either."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, paired, tiny
from bench.noisy_prefixes import fit_noisy_labels

LAST = 10
SEARCH: dict[str, Any] = {
    "trainer": "dpo",
    "task": {"name": "rewrites", "difficulty": "medium"},
    "training__max_completion_length": 64,
    "training__max_length": 128,
    "training__beta": 0.3,
    "training__sampled_prompts": 200,
}


def measure(seed: int) -> Pairs:
    own, squared = (tiny.run_train(seed, "hl-gauss-values", {"loss": loss}) for loss in ("hl-gauss", "mse"))
    searched = [tiny.run_train(seed, "cpl-step-apo", {"value_loss": loss}, **SEARCH).final("heldout/accuracy") for loss in ("hl-gauss", "mse")]
    return {
        **paired(fit_noisy_labels(seed, "hl-gauss"), fit_noisy_labels(seed, "mse")),
        "calibration in training": (own.last("hl-gauss-values/calibration_error", LAST), squared.last("hl-gauss-values/calibration_error", LAST)),
        "accuracy against squared error": (own.final("heldout/accuracy"), squared.final("heldout/accuracy")),
        "accuracy of cpl-step-apo": (searched[0], searched[1]),
        **tiny.budgeted_accuracies(own, tiny.run_train(seed)),
    }


CASE = Case(
    method="hl-gauss-values",
    parent="grpo",
    claim="Fitted to the same noisy labels for as many steps, values by classification are better calibrated than those by squared error.",
    quantities=(
        Quantity(
            "calibration",
            "calibration error on unseen synthetic prefixes after 40 batches of noisy labels; the parent fits by squared error",
            "lower",
            0.01,
            "a hundredth of the range of values",
        ),
        Quantity(
            "distance",
            "mean distance of the values to the true chances on the same prefixes; the parent fits by squared error",
            "lower",
            0.01,
            "a hundredth of the range of values",
        ),
        Quantity(
            "calibration in training",
            f"calibration error on the prefixes of a batch before it is learned from, last {LAST} of 40 steps; the parent fits by squared error",
            "lower",
            0.01,
            "a hundredth of the range of values",
        ),
        Quantity(
            "accuracy against squared error",
            "held-out accuracy after the same number of steps; the parent has the same critic by squared error",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        Quantity(
            "accuracy of cpl-step-apo",
            "held-out accuracy of cpl-step-apo with this loss of its value head; the parent has squared error",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="synthetic prefixes of known chance; word problems, tiny policy, 40 steps; number paths, step pairs of 200 searched problems, 40 steps",
    measure=measure,
    seeds=3,
)
