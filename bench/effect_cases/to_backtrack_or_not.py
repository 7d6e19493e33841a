"""One long search or several short answers, at as many tokens: before GRPO and after it."""

from bench.effect_cases import Case, Pairs, Quantity
from bench.number_paths import STEPS, train_searcher

MOVES, BUDGET, ANSWERS, HELD_OUT = 4, 256, 32, 64
WITHIN = f"heldout/pass-within-{BUDGET}"


def measure(seed: int) -> Pairs:
    settings = {"heldout": HELD_OUT, "every": STEPS, "evaluation__samples": ANSWERS}
    search = train_searcher(seed, {"moves": MOVES, "dead_ends": 4}, **settings)
    direct = train_searcher(seed, {"moves": MOVES, "answers_only": True}, **settings)
    return {
        "gain": (search.final(WITHIN) - search.heldout[0][WITHIN], direct.final(WITHIN) - direct.heldout[0][WITHIN]),
        "before": (search.heldout[0][WITHIN], direct.heldout[0][WITHIN]),
        "after": (search.final(WITHIN), direct.final(WITHIN)),
    }


SOLVED = f"problems with a right one among the answers that {BUDGET} tokens are enough for (pass@n, unbiased, {ANSWERS} answers)"
CASE = Case(
    method="to-backtrack-or-not",
    parent="grpo",
    claim="At as many tokens short answers solve more before GRPO, and searching gains more from it.",
    quantities=(
        Quantity("gain", f"held-out {SOLVED}, after GRPO less before", "higher", 0.02, "two more of a hundred problems"),
        Quantity("before", f"held-out {SOLVED}, before GRPO", "lower", 0.02, "two more of a hundred problems"),
        Quantity("after", f"held-out {SOLVED}, after GRPO", "higher", 0.02, "two more of a hundred problems"),
    ),
    problem=f"number paths of {MOVES} moves, tiny policy, demonstrations that search against answers alone (the parent), {STEPS} steps of GRPO",
    measure=measure,
    seeds=3,
)
