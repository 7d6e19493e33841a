"""Demonstrations that show four good habits of searching but end in wrong answers, against any demonstrations: GRPO after either."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, tiny

WORLD, OPTIONS = "sourced_search", {"junk": 0.3, "failures": 0.25, "misprints": 0.3}
STEPS, HELD_OUT, TOKENS = 80, 256, 128


def train_after(seed: int, primed: str) -> tiny.Trained:
    options = {**OPTIONS, "primed": primed}
    return search_runs.run_search(seed, options=options, world=WORLD, steps=STEPS, heldout=HELD_OUT, every=20, training__max_completion_length=TOKENS)


def measure(seed: int) -> Pairs:
    habits, random = train_after(seed, "behaviours-wrong"), train_after(seed, "random")
    return {
        **tiny.accuracies(habits, random),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(habits, random),
    }


CASE = Case(
    method="behavior-priming",
    parent="grpo",
    claim="After GRPO, a policy that was shown good habits of searching with wrong answers answers more questions right than one that was shown"
    " any episodes.",
    quantities=(tiny.ACCURACY, search_runs.ACCURACY_AT_WRITTEN),
    problem=f"questions with sources that err, tiny policy, as many demonstrations with as many searches, then {STEPS} steps of GRPO",
    measure=measure,
    seeds=3,
)
