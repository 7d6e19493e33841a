"""Turns paid by a judge of steps, against the final reward with the same advantages, and against GRPO; and the best of four actions by the judge."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

CONFIG = {"wrong": 1.0}
FINAL = {"step": 0.0, "probe": 0}


def measure(seed: int) -> Pairs:
    own, final = (search_runs.run_search(seed, "gui-shepherd", config, world="rooms") for config in (CONFIG, FINAL))
    parent = search_runs.run_search(seed, world="rooms")
    accuracy = "heldout/accuracy"
    return {
        **tiny.accuracies(own, parent),
        "against the final reward": (own.final(accuracy), final.final(accuracy)),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "best of four": (own.steps[0]["gui-shepherd/best_of_n"], own.steps[0]["gui-shepherd/best_of_1"]),
    }


CASE = Case(
    method="gui-shepherd",
    parent="grpo",
    claim="With turns paid by a judge of steps more episodes succeed, after as many of them, than with the final reward alone.",
    quantities=(
        tiny.ACCURACY,
        Quantity(
            "against the final reward",
            "held-out accuracy after 60 steps, the parent with generalised advantages of the final reward",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "best of four",
            "share of 32 prompts solved before training, when each move is the judge's best of four; the parent: the first move sampled",
            "higher",
            0.05,
            "one more of twenty episodes",
            by_construction="the judge has learned which moves lead on",
        ),
    ),
    problem="a row of four rooms with a key, tiny policy, 60 steps; a bad move costs 1, so that walking to and fro earns nothing",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "config": CONFIG, "task": {"name": "rooms", "difficulty": "easy"}, "training__max_completion_length": 136},
)
