"""DPO on pairs of which three in ten are labelled the wrong way round, before and after a majority of reward functions has swapped bad ones."""

from bench.effect_cases import Case, tiny

NOISY = {"trainer": "dpo", "training__label_noise": 0.3, "training__sampled_prompts": 400}


def measure(seed: int) -> tuple[float, float]:
    own, parent = tiny.run_train(seed, "prefcleanbench", {"cleaner": "vote_maj_f"}, **NOISY), tiny.run_train(seed, **NOISY)
    return own.final("heldout/accuracy"), parent.final("heldout/accuracy")


CASE = Case(
    method="prefcleanbench",
    parent="dpo",
    claim="after vote_maj_f more held-out answers are right than on the noisy labels",
    quantity="held-out accuracy after 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 30 % of labels flipped, 40 steps",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": 400},
)
