"""Noise that rises to a half against none in training, both tested where half of the searches are noise; and against noise of a half throughout."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"junk": 0.5}  # of held-out episodes, in both arms


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "zerosearch", options=OPTIONS)
    without = search_runs.run_search(seed, "zerosearch", {"first": 0.0, "last": 0.0}, OPTIONS)  # GRPO on searches without noise
    constant = search_runs.run_search(seed, options=OPTIONS)
    return {
        **tiny.accuracies(own, without),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, without),
        "against constant noise": (own.final("heldout/accuracy"), constant.final("heldout/accuracy")),
    }


CASE = Case(
    method="zerosearch",
    parent="grpo",
    claim="Where half of the searches are noise, training under rising noise answers more held-out questions than training without noise.",
    quantities=(
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "against constant noise",
            "held-out accuracy after 60 steps, the parent trained with the last rate of noise throughout",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="chained questions in the world search, half of the held-out searches noise, tiny policy, 60 steps; the parent trained without noise",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 96},
)
