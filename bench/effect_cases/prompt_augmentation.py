"""Prompt augmentation on a small fixed set of word problems trained on for many epochs: what is left of the entropy, against the plain prompt?"""

from bench.effect_cases import Case, tiny

PROMPTS, STEPS = 32, 40  # 8 prompts a step: 10 epochs


def entropy(seed: int, method: str) -> float:
    return tiny.run_train(seed, method, base="dapo", steps=STEPS, training__prompts=PROMPTS).final("heldout/entropy")


def measure(seed: int) -> tuple[float, float]:
    return entropy(seed, "prompt-augmentation"), entropy(seed, "")


CASE = Case(
    method="prompt-augmentation",
    parent="dapo",
    claim="on a small fixed dataset the policy keeps more entropy than with one template",
    quantity="held-out entropy under the plain prompt after 10 epochs (nats)",
    direction="higher",
    problem="32 word problems for 10 epochs, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "dapo"},
)
