"""Dead ends in the demonstrations before GRPO: are they worth more where the way is longer?"""

from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.number_paths import STEPS, train_searcher

MANY, SHORT, LONG = 4, 2, 4  # dead ends; moves of a puzzle


def measure(seed: int) -> Pairs:
    accuracies = {
        (moves, dead_ends): train_searcher(seed, {"moves": moves, "dead_ends": dead_ends}).final("heldout/accuracy")
        for moves in (SHORT, LONG)
        for dead_ends in (0, MANY)
    }
    gains = {moves: accuracies[moves, MANY] - accuracies[moves, 0] for moves in (SHORT, LONG)}
    return {"gain": (gains[LONG], gains[SHORT]), tiny.ACCURACY.name: (accuracies[LONG, MANY], accuracies[LONG, 0])}


CASE = Case(
    method="how-much-backtrack",
    parent="grpo",
    claim="Demonstrations with dead ends help more where the way is longer.",
    quantities=(
        Quantity(
            "gain",
            f"held-out accuracy after demonstrations with {MANY} dead ends less that after demonstrations with none, on puzzles of {LONG} moves;"
            f" the parent: of {SHORT} moves",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        tiny.ACCURACY,
    ),
    problem=f"number paths, tiny policy, {STEPS} steps of GRPO after either; accuracy on puzzles of {LONG} moves, with dead ends and without",
    measure=measure,
    seeds=3,
)
