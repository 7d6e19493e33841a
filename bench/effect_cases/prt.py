"""Traces that cite clauses against verdicts alone, as many cases of an invented rule book: SFT from random weights."""

from typing import Any

from bench.effect_cases import Case, Pairs, Quantity, tiny

CASES, STEPS, HELD_OUT = 1000, 400, 256


def train_on(seed: int, options: dict[str, Any]) -> tiny.Trained:
    task = {"name": "rule_book", "difficulty": "hard", "options": options}
    return tiny.run_train(
        seed,
        trainer="sft",
        steps=STEPS,
        heldout=HELD_OUT,
        every=100,
        task=task,
        policy={"kind": "tiny", "cold_start": False},
        training__demonstrations=CASES,
    )


def measure(seed: int) -> Pairs:
    traces, verdicts = train_on(seed, {}), train_on(seed, {"verdicts_only": True})
    cited = "heldout/citations"
    return {**tiny.accuracies(traces, verdicts), "citations": (traces.final(cited), verdicts.final(cited))}


CASE = Case(
    method="prt",
    parent="sft",
    claim="After training on traces that cite the clauses a verdict stands on, more held-out verdicts are right than after as many verdicts alone.",
    quantities=(
        tiny.ACCURACY,
        Quantity(
            "citations",
            "F1 of the clauses cited in held-out answers against those that the verdict stands on",
            "higher",
            0.02,
            "two of a hundred clauses",
            by_construction="verdicts alone cite nothing",
        ),
    ),
    problem=f"cases of an invented book of ten clauses, tiny policy from random weights, {CASES} cases, {STEPS} steps of SFT",
    measure=measure,
    seeds=3,
)
