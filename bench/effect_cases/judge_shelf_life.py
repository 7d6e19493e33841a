"""Judges trained on answers of a weak generator, and first on those and then on a strong one's: consistent accuracy on both."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

STEPS, HELD_OUT = 60, 256
LAUNCH: dict[str, Any] = {
    "trainer": "dpo",
    "training__sampled_prompts": 400,
    "training__max_completion_length": 72,
    "training__max_length": 192,
}


def train_judge(seed: int, generator: str, method: str = "judge-shelf-life") -> tiny.Trained:
    task = {"name": "verdicts", "difficulty": "easy", "options": {"generator": generator}}
    return tiny.run_train(seed, method, steps=STEPS, heldout=HELD_OUT, every=STEPS, task=task, **LAUNCH)


def measure(seed: int) -> Pairs:
    weak, continual, mixed = train_judge(seed, "weak"), train_judge(seed, "continual"), train_judge(seed, "both", "")
    on = {tier: f"heldout/consistent_{tier}" for tier in ("weak", "strong")}
    return {
        "future proof": (weak.final(on["strong"]), weak.final(on["weak"])),
        "refresh": (continual.final(on["strong"]), weak.final(on["strong"])),
        "backward": (continual.final(on["weak"]), weak.final(on["weak"])),
        "bias": (continual.final("heldout/biased"), weak.final("heldout/biased")),
        **tiny.budgeted_accuracies(continual, mixed),
    }


CASE = Case(
    method="judge-shelf-life",
    parent="dpo",
    claim="A judge trained on a weak generator's answers is worse on a strong one's; going on with those mends it at no cost on the weak ones.",
    quantities=(
        Quantity(
            "future proof",
            "consistent accuracy of the weak judge on the strong generator's pairs; the parent: on the weak one's",
            "lower",
            0.05,
            "a twentieth of its range",
        ),
        Quantity(
            "refresh",
            "consistent accuracy on the strong generator's pairs after weak, then strong pairs; the parent: after weak ones alone",
            "higher",
            0.05,
            "a twentieth of its range",
        ),
        Quantity(
            "backward",
            "consistent accuracy on the weak generator's pairs after weak, then strong pairs; the parent: after weak ones alone",
            "higher",
            0.05,
            "a twentieth of its range",
        ),
        Quantity(
            "bias",
            "pairs with the same place named in both orders, after weak, then strong pairs; the parent: after weak ones alone",
            "lower",
            0.05,
            "a twentieth of its range",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem=f"pairs of worked sums, the judge's own verdicts on 400 prompts, tiny policy, {STEPS} steps of DPO; accuracy against DPO on mixed pairs",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "task": {"name": "verdicts", "difficulty": "easy"}},
)
