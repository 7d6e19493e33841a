"""Preference pairs from the policy itself: several answers to a prompt, a verified right one preferred to a verified wrong one. Where the spec adds
reward functions, the answer with the highest summed reward is preferred to the one with the lowest.

What was sampled is kept in the run folder batch by batch, so that an interrupted run goes on with the same pairs.
"""

import json
import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trainers.adapters.resumable import fsync_path
from trainers.attempt.alternatives import keeps_alternatives
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import build_measurement_events, build_scored_fields, own_randomness
from trainers.attempt.telemetry import Scored
from trainers.contract.hyperparameters import Preferences
from trainers.contract.spans import swap_span_sides
from trainers.judges import rewards
from trainers.policies.sampling import Completion, Sampler, Sampling, as_rows
from trainers.tasks.base import Example

FILE = "pairs.jsonl"  # a line for each batch of prompts: its number and its pairs
RIGHT = 0.5  # an answer is right when the task's accuracy is above this

Row = dict[str, Any]


class NoPairs(RuntimeError):
    """The policy's answers gave nothing to prefer."""


def sample_pairs(attempt: Attempt) -> list[Row]:
    """Rows with prompt, chosen and rejected, one for each prompt with right and wrong answers. Raises NoPairs when there is none."""
    training = attempt.spec.training
    assert isinstance(training, Preferences)
    file = attempt.folder / FILE
    rows, begun = read_sampled_pairs(file)
    examples = attempt.task.examples("pairs", training.sampled_prompts, attempt.spec.seed, attempt.spec.task.difficulty)
    width = max(1, attempt.sampling_batch // training.samples_per_prompt)  # prompts a batch
    for number, start in enumerate(range(0, len(examples), width)):
        if number < begun:
            continue
        attempt.stop.check()
        attempt.reporter.phase("sampling pairs", start, len(examples))
        found = sample_batch(attempt, training, examples[start : start + width], start, number)
        attempt.reporter.writer.sync()  # what was sampled is reported before it counts as done
        append_pair_batch(file, {"batch": number, "pairs": found})
        rows += found
    attempt.reporter.phase("sampling pairs", len(examples), len(examples))
    if not rows:
        raise NoPairs(
            f"none of {len(examples)} prompts had both a right and a wrong answer (or two of different reward) among {training.samples_per_prompt}:"
            " start from a policy that is sometimes right, raise samples_per_prompt or temperature, or give a dataset of pairs"
        )
    return rows


def sample_batch(attempt: Attempt, training: Preferences, examples: Sequence[Example], start: int, number: int) -> list[Row]:
    each = training.samples_per_prompt
    repeated = [example for example in examples for _ in range(each)]
    kept = attempt.spec.telemetry
    watched = [keeps_alternatives(kept.alternatives_share, attempt.spec.seed, "sampled", start + place // each) for place in range(len(repeated))]
    how = Sampling(training.temperature, training.max_completion_length, len(repeated), alternatives=kept.alternatives)
    sampler = Sampler(attempt.policy.model, attempt.policy.tokenizer, attempt.task, how)
    with own_randomness(attempt.spec.seed + 1_000_003 * (number + 1), attempt.policy.device):
        completions = sampler.complete(repeated, watched=watched)
    scores = attempt.columns.score_rows([(made.text, example) for made, example in zip(completions, repeated, strict=True)])
    report_sampled_answers(attempt, repeated, completions, scores, start, each)
    choose = choose_by_reward if any(not column.shadow for column in attempt.spec.rewards) else choose_by_accuracy
    found = []
    for place, example in enumerate(examples):
        group = slice(place * each, (place + 1) * each)
        if (pair := choose(attempt, [made.text for made in completions[group]], scores[group])) is not None:
            found.append(make_pair_row(example, *pair))
    return found


def choose_by_accuracy(attempt: Attempt, texts: Sequence[str], scores: Sequence[dict[str, float | None]]) -> tuple[str, str] | None:
    """(chosen, rejected): the first right answer and the first wrong one that says something. None without either."""
    values = [score[next(iter(attempt.task.rewards))] for score in scores]
    right = [text for text, value in zip(texts, values, strict=True) if value is not None and value > RIGHT]
    wrong = [text for text, value in zip(texts, values, strict=True) if value is not None and value <= RIGHT and text]
    return (right[0], wrong[0]) if right and wrong else None


def choose_by_reward(attempt: Attempt, texts: Sequence[str], scores: Sequence[dict[str, float | None]]) -> tuple[str, str] | None:
    """(chosen, rejected): the answers with the highest and the lowest summed reward, the first of equals. None where all get the same."""
    sums = [
        (total, text)
        for text, score in zip(texts, scores, strict=True)
        if text and (total := rewards.weighted_sum(score, attempt.weights)) is not None
    ]
    if not sums:
        return None
    best, worst = max(sums, key=lambda one: one[0]), min(sums, key=lambda one: one[0])
    return (best[1], worst[1]) if best[0] > worst[0] else None


def make_pair_row(example: Example, right: str, wrong: str) -> Row:
    return {
        "prompt": as_rows(example.prompt),
        "chosen": [{"role": "assistant", "content": right}],
        "rejected": [{"role": "assistant", "content": wrong}],
    }


def with_noise(rows: list[Row], share: float, seed: int) -> list[Row]:
    """Rows with that share of the pairs swapped, chosen by the seed; a column ``flipped`` says which, for panels and never for training."""
    if not share:
        return rows
    swapped = set(random.Random(f"label noise/{seed}").sample(range(len(rows)), round(share * len(rows))))
    return [
        {**swap_span_sides(row), "chosen": row["rejected"], "rejected": row["chosen"], "flipped": True}
        if place in swapped
        else {**row, "flipped": False}
        for place, row in enumerate(rows)
    ]


def kto_rows_from_pair(pair: Row) -> list[Row]:
    """A pair as two rows of KTO: its chosen answer is good, its rejected one bad."""
    rest = {name: value for name, value in pair.items() if name not in ("chosen", "rejected")}
    return [{**rest, "completion": pair["chosen"], "label": True}, {**rest, "completion": pair["rejected"], "label": False}]


def report_sampled_answers(
    attempt: Attempt, examples: Sequence[Example], completions: Sequence[Completion], scores: Sequence[dict[str, float | None]], start: int, each: int
) -> None:
    scored = [
        Scored(step=0, phase="sampled", group=start + i // each, sample=i % each, **build_scored_fields(example, made, score, total))
        for i, (example, made, score) in enumerate(zip(examples, completions, scores, strict=True))
        for total in [rewards.weighted_sum(score, attempt.weights)]
    ]
    attempt.reporter.later(partial(build_measurement_events, scored, completions, attempt.pieces, attempt.reporter.stamp()))


def read_sampled_pairs(file: Path) -> tuple[list[Row], int]:
    """The pairs sampled so far and how many batches they took; an unfinished last line is cut off."""
    if not file.exists():
        return [], 0
    data = file.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(file, len(whole))
    batches = [json.loads(line) for line in whole.splitlines()]
    return [row for batch in batches for row in batch["pairs"]], len(batches)


def append_pair_batch(file: Path, batch: Row) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(batch) + "\n")
    fsync_path(file)
