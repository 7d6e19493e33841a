"""Users who want their working in a way of their own: does the embedding help the reward model, and do answers come to follow the users' rules?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.worlds.personal_style import PersonalStyle


def measure(seed: int) -> Pairs:
    own, parent = (search_runs.run_search(seed, "tagpr", config, world="personal_style") for config in ({}, {"person": 0.0, "tags": 0.0}))
    return {
        "pair accuracy": (own.steps[0]["tagpr/pair_accuracy"], own.steps[0]["tagpr/pair_accuracy_without"]),
        "style": (own.final("heldout/style"), parent.final("heldout/style")),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="tagpr",
    parent="grpo",
    claim="A reward model that knows the user ranks more held-out pairs as the user does, and answers trained with it follow the users' rules more"
    " often.",
    quantities=(
        Quantity(
            "pair accuracy",
            "share of held-out pairs ranked as the user does; the parent is the same model without the embedding",
            "higher",
            0.02,
            "two more of a hundred pairs",
        ),
        Quantity(
            "style",
            "how well held-out answers follow the user's rule (1: as many lines as wanted); the parent is paid for the answer alone",
            "higher",
            0.05,
            "one line of working in ten answers",
            by_construction="a model of the users' taste is paid, though not the rule itself",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem=f"word problems for twelve users with one of three rules of style, tiny policy, {search_runs.STEPS} steps",
    measure=measure,
    seeds=3,
    launch={
        "base": "grpo",
        "task": {"name": "personal_style", "difficulty": "easy"},
        "training__max_completion_length": PersonalStyle.episode_tokens,
    },
)
