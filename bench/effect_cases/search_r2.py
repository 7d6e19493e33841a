"""One cut at the first flawed search against no cut, and against sampling a flagged episode again as a whole, at equal generated tokens."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.equal_tokens import Curve, values_at_equal_tokens

OPTIONS = {"distractors": 1}
DIFFICULTY = "medium"  # always two hops
MEMBERS = 64  # completions a step


def curve_by_written(made: tiny.Trained) -> Curve:
    """Held-out accuracy by the tokens that the policy wrote until then, those that were cut counted."""
    places = sorted(made.heldout)
    written = [sum(step["search-r2/written"] for step in made.steps[:place]) * MEMBERS for place in places]
    return [(tokens, made.heldout[place]["heldout/accuracy"]) for tokens, place in zip(written, places, strict=True)]


def measure(seed: int) -> Pairs:
    own, whole, none = (
        search_runs.run_search(seed, "search-r2", config, OPTIONS, difficulty=DIFFICULTY) for config in ({}, {"keep": "nothing"}, {"revisions": 0})
    )
    return {
        "accuracy at written tokens": values_at_equal_tokens(curve_by_written(own), curve_by_written(none)),
        **tiny.accuracies(own, none),
        "against whole episodes": values_at_equal_tokens(curve_by_written(own), curve_by_written(whole)),
        "useful": (own.final("heldout/useful"), none.final("heldout/useful")),
    }


CASE = Case(
    method="search-r2",
    parent="grpo",
    claim="Cutting an episode at its first flawed search and going on from there answers more held-out questions for as many generated tokens.",
    quantities=(
        Quantity(
            "accuracy at written tokens",
            "held-out accuracy after as many tokens written by the policy, those that were cut counted; the parent has the same reward and no cut",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        tiny.ACCURACY,
        Quantity(
            "against whole episodes",
            "held-out accuracy after as many written tokens, the parent sampling each flagged episode again as a whole",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        Quantity("useful", "share of held-out searches that found new evidence, never cut", "higher", 0.02, "two more of a hundred searches"),
    ),
    problem="two-hop questions with distractors in the world search, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": DIFFICULTY, "options": OPTIONS}, "training__max_completion_length": 96},
)
