"""DPO in one of two layers, its tokens weighted by attention, against DPO in all of the policy: are as many held-out answers right?"""

from bench.effect_cases import Case, Pairs, tiny

PAIRS = {"trainer": "dpo", "training__sampled_prompts": 400}


def measure(seed: int) -> Pairs:
    own, parent = tiny.run_train(seed, "sail", {"layers": 1}, **PAIRS), tiny.run_train(seed, **PAIRS)
    return tiny.budgeted_accuracies(own, parent)


CASE = Case(
    method="sail",
    parent="dpo",
    claim="with a third of the parameters trained at least as many held-out answers are right",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch=PAIRS,
)
