"""How far GRPO is ahead of SFT on as many right samples of the same policy, with long answers and with short ones."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

TASK = {"name": "number_traces", "difficulty": "easy", "options": {"moves": 3, "dead_ends": 4, "varied": True}}
STEPS, GROUPS, SAMPLES = 40, 8, 8
SHORT, LONG = 48, 112  # tokens of an answer
CLONING: dict[str, Any] = {"trainer": "sft", "task": TASK, "training__learning_rate": 3e-4, "training__demonstrations": 64}
LAUNCH: dict[str, Any] = {**CLONING, "training__max_completion_length": LONG}
GAP = Quantity(
    "gap",
    "held-out accuracy of GRPO less that of SFT on right samples, with answers of up to 112 tokens against up to 48",
    "higher",
    0.02,
    "two more of a hundred problems",
)


def measure(seed: int) -> Pairs:
    gaps, cloned = dict[int, float](), dict[int, float]()
    config = {"prompts": STEPS * GROUPS, "samples": SAMPLES}
    for budget in (SHORT, LONG):
        length = {"training__max_completion_length": budget}
        own = tiny.run_train(seed, "vb-vs-vf", config, steps=STEPS, **CLONING, **length)
        verified = tiny.run_train(seed, trainer="grpo", base="grpo", steps=STEPS, task=TASK, **length)
        cloned[budget] = own.final("heldout/accuracy")
        gaps[budget] = verified.final("heldout/accuracy") - cloned[budget]
    plain = tiny.run_train(seed, steps=STEPS, **CLONING, training__max_completion_length=LONG)
    return {GAP.name: (gaps[LONG], gaps[SHORT]), tiny.ACCURACY.name: (cloned[LONG], plain.final("heldout/accuracy"))}


CASE = Case(
    method="vb-vs-vf",
    parent="sft",
    claim="The longer answers may be, the farther GRPO is ahead of SFT on as many right samples.",
    quantities=(GAP, tiny.ACCURACY),
    problem=f"number paths of 3 moves whose traces have up to 4 dead ends, tiny policy, {STEPS} steps of each; the first quantity compares long"
    " answers with short ones, the second right samples with 64 demonstrations",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
