"""DPO on pairs of which three in ten are labelled the wrong way round, before and after a majority of reward functions has swapped bad ones."""

from bench.effect_cases import Case, Pairs, Quantity, tiny

NOISY = {"trainer": "dpo", "training__label_noise": 0.3, "training__sampled_prompts": 400}


def cleaned(seed: int, cleaner: str) -> tiny.Trained:
    return tiny.run_train(seed, "prefcleanbench", {"cleaner": cleaner}, **NOISY)


def measure(seed: int) -> Pairs:
    told, untold, parent = cleaned(seed, "vote_maj_f"), cleaned(seed, "ifd_gap_f"), tiny.run_train(seed, **NOISY)
    without = tiny.accuracies(untold, parent)
    return {"accuracy, told": tiny.accuracies(told, parent)[tiny.ACCURACY.name]} | without


CASE = Case(
    method="prefcleanbench",
    parent="dpo",
    claim="after vote_maj_f more held-out answers are right than on the noisy labels",
    quantities=(
        Quantity(
            "accuracy, told",
            "held-out accuracy after 40 steps",
            "higher",
            0.02,
            "two more of a hundred problems",
            by_construction="the voters are the verifiers that know the answers",
        ),
        Quantity(
            tiny.ACCURACY.name,
            "held-out accuracy after 40 steps, cleaned by ifd_gap_f, which the policy's own likelihoods decide",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="word problems, tiny policy, 30 % of labels flipped, 40 steps",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": 400},
)
