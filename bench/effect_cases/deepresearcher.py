"""A penalty for broken form and the F1 of the answer, where three searches in ten fail: is the form kept, and is asked again after a failure?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"failures": 0.3}
FAILED = "<information>failed</information>"


def share_broken(made: tiny.Trained) -> float:
    texts = search_runs.list_last_texts(made)
    return sum(not text.endswith("</answer>") for text in texts) / len(texts)


def share_asked_again(made: tiny.Trained) -> float:
    return search_runs.count_per_text(made, f"{FAILED}<search>") / max(1e-9, search_runs.count_per_text(made, FAILED))


def measure(seed: int) -> Pairs:
    own, parent = search_runs.run_search(seed, "deepresearcher", options=OPTIONS), search_runs.run_search(seed, options=OPTIONS)
    return {
        "broken": (share_broken(own), share_broken(parent)),
        "asked again": (share_asked_again(own), share_asked_again(parent)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="deepresearcher",
    parent="grpo",
    claim="Fewer episodes end without an answer, and more searches that failed are followed by another one.",
    quantities=(
        Quantity(
            "broken",
            "share of episodes without an answer, last 15 of 60 steps",
            "lower",
            0.01,
            "one episode of a hundred",
            by_construction="an episode without an answer is paid less than one with a wrong answer",
        ),
        Quantity("asked again", "share of failed searches followed by another search, last 15 of 60 steps", "higher", 0.05, "one failure of twenty"),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="chained questions in the world search, 30 % of the searches fail, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 96},
)
