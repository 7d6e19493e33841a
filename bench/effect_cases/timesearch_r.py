"""Second answers from what was found alone, paid and only measured, on two-hop questions with distractors."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.equal_tokens import values_at_equal_tokens
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, trace_heldout

OPTIONS = {"distractors": 1}
DIFFICULTY = "medium"  # always two hops


def measure(seed: int) -> Pairs:
    own, parent = (search_runs.run_search(seed, "timesearch-r", config, OPTIONS, difficulty=DIFFICULTY) for config in ({}, {"verification": 0.0}))
    curves = trace_heldout(own, "heldout/accuracy", "timesearch-r/policy_tokens"), trace_heldout(parent, "heldout/accuracy")
    return {
        "unsupported": (own.last("timesearch-r/unsupported", search_runs.LAST), parent.last("timesearch-r/unsupported", search_runs.LAST)),
        **tiny.accuracies(own, parent),
        ACCURACY_AT_POLICY_TOKENS.name: values_at_equal_tokens(*curves),
        "evidence": (own.final("heldout/evidence"), parent.final("heldout/evidence")),
    }


CASE = Case(
    method="timesearch-r",
    parent="grpo",
    claim="Fewer right answers are right for the wrong evidence: what was found is enough to give them again.",
    quantities=(
        Quantity(
            "unsupported",
            "share of the right answers whose second answer is wrong, last 15 of 60 steps; the parent has the same reward without the second answers",
            "lower",
            0.02,
            "two of a hundred right answers",
            by_construction="right answers are paid more where the second answer is right",
        ),
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
        Quantity("evidence", "share of the sentences needed that held-out searches found", "higher", 0.02, "two more of a hundred sentences"),
    ),
    problem="two-hop questions with distractors in the world search, tiny policy, 60 steps; second answers count as tokens of the method alone",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "search", "difficulty": DIFFICULTY, "options": OPTIONS}, "training__max_completion_length": 96},
)
