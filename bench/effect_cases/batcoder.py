"""BatCoder on list programs: documents and rebuilds trained together against rebuilds alone, from programs without words."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

LAUNCH: dict[str, Any] = {
    "base": "dapo",
    "task": {"name": "programs", "difficulty": "medium", "options": {"write": "both", "documented": 1.0}},
    "training__max_completion_length": 48,
    "training__lr_scheduler_type": "linear",
}
STEPS, LAST = 60, 10


def measure(seed: int) -> Pairs:
    own, alone = (tiny.run_train(seed, "batcoder", {"documenter": both}, steps=STEPS, **LAUNCH) for both in (True, False))
    names = ("rebuilt", "copied")
    return {name: tuple(made.last(f"batcoder/{name}", LAST) for made in (own, alone)) for name in names} | tiny.budgeted_accuracies(own, alone)  # type: ignore[return-value]


CASE = Case(
    method="batcoder",
    parent="dapo",
    claim="more programs are rebuilt when the documents are trained too, without code being copied into them",
    quantities=(
        Quantity(
            "rebuilt",
            f"share of rebuilt programs that pass every test of the original, last {LAST} steps",
            "higher",
            0.02,
            "two more of a hundred programs",
            by_construction="tests that agree pay for documents and rebuilds",
        ),
        Quantity(
            "copied", f"share of documents with names of operations in them, last {LAST} steps", "lower", 0.02, "two more of a hundred documents"
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem=f"one of twenty operations on a list, tiny policy, {STEPS} steps; held out, half of the prompts ask for words and half for code; the"
    " parent trains the rebuilds alone",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
