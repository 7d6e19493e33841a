"""Search self-play in a graph of people: what a proposer writes with and without the filter, and what answering its questions teaches."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH: dict[str, Any] = {
    "base": "dapo",
    "task": {"name": "graph_questions", "difficulty": "medium", "options": {"ask": "answer"}},
    "training__max_completion_length": 64,
    "training__lr_scheduler_type": "linear",
}
STEPS, FIRST, LAST = 60, 5, 10


def measure_start(made: tiny.Trained, name: str) -> float:
    values = [step[name] for step in made.steps if name in step][:FIRST]
    return sum(values) / len(values)


def measure(seed: int) -> Pairs:
    own = tiny.run_train(seed, "search-self-play", steps=STEPS, **LAUNCH)
    unfiltered = tiny.run_train(seed, "search-self-play", {"filter": False}, steps=STEPS, **LAUNCH)
    parent = tiny.run_train(seed, steps=STEPS, **LAUNCH)
    hops, success = (f"search-self-play/{name}" for name in ("hops", "success"))
    return {
        "hops": (own.last(hops, LAST), measure_start(own, hops)),
        "success away from half": (abs(own.last(success, LAST) - 0.5), abs(measure_start(own, success) - 0.5)),
        "unanswerable": tuple(1 - made.last("search-self-play/valid", LAST) for made in (own, unfiltered)),  # type: ignore[dict-item]
        **tiny.budgeted_accuracies(own, parent),
    }


CASE = Case(
    method="search-self-play",
    parent="dapo",
    claim="questions come to follow more edges, and with the filter the proposer does not turn to unanswerable ones",
    quantities=(
        Quantity(
            "hops",
            f"edges that a question follows, mean of the last {LAST} steps against the first {FIRST} of the same run",
            "higher",
            0.1,
            "one edge more in ten questions",
            by_construction="questions that the solver fails at are paid",
        ),
        Quantity(
            "success away from half", "distance of the solver's success from one half, at the same places", "lower", 0.05, "a question in twenty"
        ),
        Quantity(
            "unanswerable",
            f"share of what is written that no question comes of, last {LAST} steps; the parent asks without the filter",
            "lower",
            0.05,
            "a question in twenty",
            by_construction="what the filter rejects is paid nothing",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem=f"questions of one edge over a graph of six people, tiny policy, {STEPS} steps; DAPO is trained on the world's own questions",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
