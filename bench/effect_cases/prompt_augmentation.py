"""Prompt augmentation on a small fixed set of word problems trained on for many epochs: what is left of the entropy, against the plain prompt?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

PROMPTS, STEPS = 32, 40  # 8 prompts a step: 10 epochs


def trained(seed: int, method: str) -> tiny.Trained:
    return tiny.run_train(seed, method, base="dapo", steps=STEPS, training__prompts=PROMPTS)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "prompt-augmentation"), trained(seed, "")
    return {"entropy": (own.final("heldout/entropy"), parent.final("heldout/entropy"))} | tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="prompt-augmentation",
    parent="dapo",
    claim="on a small fixed dataset the policy keeps more entropy than with one template",
    quantities=(
        Quantity("entropy", "held-out entropy under the plain prompt after 10 epochs (nats)", "higher", 0.05, "a twentieth of a nat"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="32 word problems for 10 epochs, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch={"base": "dapo"},
)
