"""What the probe is for: reinforcement compresses representations, preference learning spreads them. RankMe in the end relative to the start."""

from bench.effect_cases import Case, Pairs, Quantity, tiny

NAME = "rep-geometry-rankme"


def growth(seed: int, trainer: str) -> float:
    size = {"per_device_train_batch_size": 32} | ({"sampled_prompts": 256} if trainer == "dpo" else {})
    arguments = {f"training__{name}": value for name, value in size.items()}
    steps = tiny.run_train(seed, NAME, {"every": 1}, trainer=trainer, base=trainer, heldout=0, **arguments).steps
    values = [step[f"{NAME}/rankme"] for step in steps]
    return values[-1] / values[0]


def measure(seed: int) -> Pairs:
    return {"growth": (growth(seed, "grpo"), growth(seed, "dpo"))}


CASE = Case(
    method=NAME,
    parent="dpo",
    claim="GRPO compresses the representation of prompts more than DPO does",
    quantities=(Quantity("growth", "RankMe after 40 steps relative to the start", "lower", 0.05, "a twentieth of the rank at the start"),),
    problem="word problems, tiny policy, 40 steps of 32 rows",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
)
