"""DPO in one of two layers, its tokens weighted by attention, against DPO in all of the policy: are as many held-out answers right?"""

from bench.effect_cases import Case, tiny

PAIRS = {"trainer": "dpo", "training__sampled_prompts": 400}


def measure(seed: int) -> tuple[float, float]:
    own, parent = tiny.run_train(seed, "sail", {"layers": 1}, **PAIRS), tiny.run_train(seed, **PAIRS)
    return own.final("heldout/accuracy"), parent.final("heldout/accuracy")


CASE = Case(
    method="sail",
    parent="dpo",
    claim="with a third of the parameters trained at least as many held-out answers are right",
    quantity="held-out accuracy after 40 steps",
    direction="higher",
    problem="word problems, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch=PAIRS,
)
