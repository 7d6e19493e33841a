"""DPO on pairs of which half are labelled the wrong way round, so that they say nothing, and MetaAPO, which may sample pairs of its own."""

from bench.effect_cases import Case, Pairs, tiny

NOISY = {"trainer": "dpo", "training__label_noise": 0.5, "training__sampled_prompts": 400}


def measure(seed: int) -> Pairs:
    own, parent = tiny.run_train(seed, "metaapo", **NOISY), tiny.run_train(seed, **NOISY)
    return tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="metaapo",
    parent="dpo",
    claim="with online pairs beside noisy offline ones more held-out answers are right",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="word problems, tiny policy, half of the labels flipped, 40 steps",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": 400},
)
