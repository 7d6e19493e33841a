"""A reward model that weighs rare pairs by their circuit and keeps common ones free of it, against the plain one on the same pairs."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

NAME, STEPS = "cart-circuit-reward", 60
LAUNCH: dict[str, Any] = {"trainer": "reward", "base": "reward-model", "training__sampled_prompts": 1500, "training__learning_rate": 1e-3}
ON = {"find": 0.25, "probe": 128}  # before the loss is near 0, and enough pairs to tell a twentieth
OFF = {**ON, "gain": 0.0, "penalty": 0.0}


def measure(seed: int) -> Pairs:
    own, plain = (tiny.run_train(seed, NAME, config, steps=STEPS, heldout=0, **LAUNCH) for config in (ON, OFF))
    read = {arm: {what: made.last(f"{NAME}/{what}_accuracy", 1) for what in ("tail", "head")} for arm, made in (("own", own), ("plain", plain))}
    drops = {what: read["own"][what] - own.last(f"{NAME}/{what}_accuracy_ablated", 1) for what in ("tail", "head")}
    return {
        "tail": (read["own"]["tail"], read["plain"]["tail"]),
        "head": (read["own"]["head"], read["plain"]["head"]),
        "drop": (drops["tail"], drops["head"]),
    }


CASE = Case(
    method=NAME,
    parent="reward-model",
    claim="More of the rare pairs are ranked right at no loss on the common ones, and without the circuit the rare ones alone suffer.",
    quantities=(
        Quantity("tail", f"accuracy on unseen pairs under the rare rule after {STEPS} steps", "higher", 0.05, "a twentieth of its range"),
        Quantity("head", f"accuracy on the same pairs without the rule after {STEPS} steps", "higher", 0.02, "two more of a hundred pairs"),
        Quantity(
            "drop",
            "accuracy on pairs under the rule that is lost without the circuit; the parent: on common pairs, of the same model",
            "higher",
            0.05,
            "a twentieth of its range",
        ),
    ),
    problem=f"right against wrong answers to word problems, turned round in 2 % by a word in the question, tiny policy, {STEPS} steps",
    measure=measure,
    seeds=3,
    launch={**LAUNCH, "training__sampled_prompts": 160},
)
