"""Stories and the same stories with another number in them: does the likelier answer swap with the story?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny

PAIRS = {"trainer": "dpo", "training__sampled_prompts": 400}


def trained(seed: int, two_way: bool) -> tiny.Trained:
    return tiny.run_train(seed, "scpo-semantic-curriculum", {"two_way": two_way}, **PAIRS)


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, True), trained(seed, False)
    return {"flips": (own.last("scpo-semantic-curriculum/flips", 10), parent.last("scpo-semantic-curriculum/flips", 10))} | tiny.budgeted_accuracies(
        own, parent
    )


CASE = Case(
    method="scpo-semantic-curriculum",
    parent="dpo",
    claim="the likelier of two answers swaps with the story more often than after one-sided DPO on the same pairs and stages",
    quantities=(
        Quantity(
            "flips",
            "share of pairs whose order swaps, last 10 of 40 steps",
            "higher",
            0.02,
            "two more of a hundred pairs",
            by_construction="the loss asks both ways for the order that is counted, on the same pairs",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems with a second story, tiny policy, 40 steps",
    measure=measure,
    seeds=3,
    launch=PAIRS,
)
