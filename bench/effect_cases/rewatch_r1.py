"""True and sufficient notes paid with right answers, against right answers alone, and against pay for notes whatever the answer."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.equal_tokens import values_at_equal_tokens
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, trace_heldout

OPTIONS = {"windows": 0.5}


def measure(seed: int) -> Pairs:
    arms = ({}, {"observations": 0.0, "reasoning": 0.0}, {"gate": False})
    own, parent, ungated = (search_runs.run_search(seed, "rewatch-r1", config, OPTIONS, world="reader") for config in arms)
    curves = trace_heldout(own, "heldout/accuracy", "rewatch-r1/policy_tokens"), trace_heldout(parent, "heldout/accuracy")
    return {
        "unsupported": (own.last("rewatch-r1/unsupported", search_runs.LAST), parent.last("rewatch-r1/unsupported", search_runs.LAST)),
        "kept": (own.final("heldout/kept"), parent.final("heldout/kept")),
        **tiny.accuracies(own, parent),
        ACCURACY_AT_POLICY_TOKENS.name: values_at_equal_tokens(*curves),
        "against no gate": (own.final("heldout/accuracy"), ungated.final("heldout/accuracy")),
    }


CASE = Case(
    method="rewatch-r1",
    parent="grpo",
    claim="Fewer notes say what the text does not, and more of what the answer needs is kept, while no fewer answers are right.",
    quantities=(
        Quantity(
            "unsupported",
            "share of the notes that claim what the text has not said, last 15 of 60 steps; the parent has the same reward without notes",
            "lower",
            0.02,
            "two of a hundred notes",
            by_construction="true notes are paid",
        ),
        Quantity("kept", "share of the needed words that held-out memories hold in the end", "higher", 0.02, "two more of a hundred words"),
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
        Quantity(
            "against no gate",
            "held-out accuracy after the same number of steps, the parent paying notes of wrong answers too",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="texts of two chunks in the world reader, tiny policy, 60 steps; second answers count as tokens of the method alone",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "reader", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 112},
)
