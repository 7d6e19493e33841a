"""Questions paid by the Shapley values of the facts that they bring out, against questions paid for each new fact alike, and against GRPO."""

from typing import Any

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

CONFIG: dict[str, Any] = {"temperature": 0.1}  # values of facts lie between 0 and 1: at T = 2 their weights hardly differ
COUNT = {**CONFIG, "measure": "count"}
DIFFICULTY = "medium"  # neither of the facts that decide is in the prompt


def measure(seed: int) -> Pairs:
    own, count = (search_runs.run_search(seed, "promed", config, world="interview", difficulty=DIFFICULTY) for config in (CONFIG, COUNT))
    parent = search_runs.run_search(seed, world="interview", difficulty=DIFFICULTY)
    return {
        "decisive first": (own.last("promed/decisive_first"), count.last("promed/decisive_first")),
        "thrift": (own.final("heldout/thrift"), count.final("heldout/thrift")),
        "against a count": (own.final("heldout/accuracy"), count.final("heldout/accuracy")),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="promed",
    parent="grpo",
    claim="Facts that decide are asked for first, where a reward for each new fact alike asks for any.",
    quantities=(
        Quantity(
            "decisive first",
            "share of first questions that bring out a fact that decides (mean of the last 5 steps); the parent counts new facts",
            "higher",
            0.05,
            "one more of twenty questions",
            by_construction="facts that raise the chance of the right answer are paid more",
        ),
        Quantity("thrift", "share of held-out questions that bring out a fact that decides; the parent counts new facts", "higher", 0.05, "as above"),
        Quantity(
            "against a count", "held-out accuracy after 60 steps; the parent counts new facts", "higher", 0.02, "two more of a hundred problems"
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
    ),
    problem="six hidden facts, two of which decide, a patient by rule, tiny policy, 60 steps",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "config": CONFIG, "task": {"name": "interview", "difficulty": DIFFICULTY}, "training__max_completion_length": 64},
)
