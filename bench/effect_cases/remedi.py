"""RemeDi on word problems: the built-in masked policy that may take tokens back, against the same one whose tokens stay once they are written."""

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.effect_cases.tiny import Trained

STEPS, DIFFUSION_STEPS, TEMPERATURE = 30, 20, 0.5


def trained(seed: int, base: str) -> Trained:
    data = tiny.spec_of(seed, steps=STEPS, heldout=256, training__temperature=TEMPERATURE)
    data["evaluation"]["temperature"] = TEMPERATURE
    return tiny.cached(data | {"base": {"name": base, "config": {"diffusion_steps": DIFFUSION_STEPS}}})


def measure(seed: int) -> Pairs:
    own, fixed = trained(seed, "remedi"), trained(seed, "diffucoder-coupled-grpo")
    before = (own.heldout[0]["heldout/accuracy"], fixed.heldout[0]["heldout/accuracy"])
    return {"accuracy before": before} | tiny.budgeted_accuracies(own, fixed)


CASE = Case(
    method="remedi",
    parent="grpo",
    claim="with as many steps of writing fewer answers are wrong where tokens may be taken back than where they stay, before and after training",
    quantities=(
        Quantity("accuracy before", "held-out accuracy of the start, written in 20 steps", "higher", 0.02, "two more of a hundred problems"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, built-in masked policy, answers written in 20 steps at temperature 0.5, 30 steps of training; the parent is coupled GRPO",
    measure=measure,
    seeds=3,
    launch={"base": "remedi"},
)
