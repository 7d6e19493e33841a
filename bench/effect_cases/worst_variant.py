"""Settings of the world search added worst first, against all of them from the beginning: how good is the policy in its worst setting?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

CONFIG = {"noise": 0.6, "rates": 3, "relations": 2, "every": 5, "prompts": 48}


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "worst-variant", CONFIG)
    mixed = search_runs.run_search(seed, "worst-variant", {**CONFIG, "begin": "all"})
    return {
        "worst setting": (own.last("worst-variant/worst", 3), mixed.last("worst-variant/worst", 3)),
        "all settings": (own.last("worst-variant/mean", 3), mixed.last("worst-variant/mean", 3)),
        **tiny.accuracies(own, mixed),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, mixed),
    }


CASE = Case(
    method="worst-variant",
    parent="grpo",
    claim="The reward in the worst of six settings is higher than after training on all of them in equal shares.",
    quantities=(
        Quantity(
            "worst setting",
            "reward of the setting with the lowest, on prompts that are not trained on, last 3 looks of 60 steps; the parent mixes all settings",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        Quantity("all settings", "mean reward of the six settings at the same looks", "higher", 0.02, "two more of a hundred problems"),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="chained questions in the world search, junk of 0, .3 or .6 and one or two relations, tiny policy, 60 steps; held out without junk",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "config": CONFIG,
        "task": {"name": "search", "difficulty": "easy"},
        "training__max_completion_length": 96,
    },
)
