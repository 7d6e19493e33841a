"""Number paths with a reward for what a right answer adds to its group, against GRPO and ROVER: how many different right answers are there?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

WORLD, DIFFICULTY = "rewrites", "medium"
CONFIG = {"weight": 0.5, "alike": "same text"}


def trained(seed: int, method: str = "", config: dict[str, object] | None = None, passes: int = 1) -> tiny.Trained:
    return search_runs.run_search(seed, method, config, world=WORLD, difficulty=DIFFICULTY, training__num_iterations=passes)


def count_different(made: tiny.Trained, last: int = search_runs.LAST) -> float:
    """Different right answers of a group, mean over those groups of the last steps that have any."""
    newest = max(rollout["step"] for rollout in made.rollouts)
    groups = dict[tuple[int, int], set[str]]()
    for rollout in made.rollouts:
        if rollout["step"] > newest - last and (rollout["rewards"]["correct"] or 0) > 0.5:
            groups.setdefault((rollout["step"], rollout["group"]), set()).add(rollout["text"].strip())
    return sum(map(len, groups.values())) / max(1, len(groups))


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, "marginal-gain", CONFIG), trained(seed)
    twice, rover = trained(seed, "marginal-gain", CONFIG, passes=2), trained(seed, "rover", passes=2)
    return {
        "different": (count_different(own), count_different(parent)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "different against rover": (count_different(twice), count_different(rover)),
        "accuracy against rover": (twice.final("heldout/accuracy"), rover.final("heldout/accuracy")),
    }


CASE = Case(
    method="marginal-gain",
    parent="grpo",
    claim="Groups keep more different right answers at no loss of held-out accuracy.",
    quantities=(
        Quantity(
            "different",
            "different right answers of a group that has any, last 15 of 60 steps",
            "higher",
            0.2,
            "one answer more in five groups",
            by_construction="a right answer is paid less for every other one like it",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "different against rover",
            "the same, the parent being ROVER, both with two passes over a batch",
            "higher",
            0.2,
            "one answer more in five groups",
            by_construction="a right answer is paid less for every other one like it",
        ),
        Quantity(
            "accuracy against rover",
            "held-out accuracy, the parent being ROVER, both with two passes over a batch",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="number paths of 2 or 3 moves, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "config": CONFIG,
        "task": {"name": WORLD, "difficulty": DIFFICULTY},
        "training__max_completion_length": 64,
    },
)
