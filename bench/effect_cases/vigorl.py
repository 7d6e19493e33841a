"""Readers whose memories quote lines: does paying for quoted places leave fewer steps without support than paying for the answer alone?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

OPTIONS = {"numbered": True}
TOKENS, STEPS, LAST = 144, 40, 10  # LAST: of the steps, those that are looked at


def train_readers(seed: int, weight: float, bonus: float) -> tiny.Trained:
    config = {"weight": weight, "bonus": bonus}
    return search_runs.run_search(seed, "vigorl", config, OPTIONS, world="reader", steps=STEPS, training__max_completion_length=TOKENS)


def count_repeats(made: tiny.Trained) -> float:
    """Quotes of an episode beyond the distinct ones."""
    return made.last("vigorl/quotes", LAST) - made.last("vigorl/distinct", LAST)


def measure(seed: int) -> Pairs:
    own, parent = train_readers(seed, 0.6, 0.2), train_readers(seed, 1.0, 0.2)  # the parent: GRPO on the right answer
    return {
        "unsupported steps": (own.last("vigorl/unsupported", LAST), parent.last("vigorl/unsupported", LAST)),
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
        "repeated quotes": (count_repeats(own), count_repeats(parent)),
    }


CASE = Case(
    method="vigorl",
    parent="grpo",
    claim="With quoted places paid beside the answer fewer steps keep what no line they quote says, and no fewer held-out questions are answered.",
    quantities=(
        Quantity(
            "unsupported steps",
            f"share of memories that keep a word which no line they quote says, last {LAST} steps",
            "lower",
            0.05,
            "one of twenty memories",
            by_construction="the reward pays for quoting a line, though not for the right one",
        ),
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity("repeated quotes", f"quotes of an episode beyond the distinct ones, last {LAST} steps", "lower", 0.1, "one of ten episodes"),
    ),
    problem=f"texts of two chunks with numbered lines, world reader, tiny policy, {STEPS} steps; the parent is paid for the answer alone",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "reader", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": TOKENS},
)
