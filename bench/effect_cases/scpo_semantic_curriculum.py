"""Stories and the same stories with another number in them: does the likelier answer swap with the story?"""

from bench.effect_cases import Case, tiny

PAIRS = {"trainer": "dpo", "training__sampled_prompts": 400}


def flips(seed: int, two_way: bool) -> float:
    made = tiny.run_train(seed, "scpo-semantic-curriculum", {"two_way": two_way}, **PAIRS)
    return made.last("scpo-semantic-curriculum/flips", 10)


def measure(seed: int) -> tuple[float, float]:
    return flips(seed, True), flips(seed, False)


CASE = Case(
    method="scpo-semantic-curriculum",
    parent="dpo",
    claim="the likelier of two answers swaps with the story more often than after one-sided DPO on the same pairs and stages",
    quantity="share of pairs whose order swaps, last 10 of 40 steps",
    direction="higher",
    problem="word problems with a second story, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch=PAIRS,
)
