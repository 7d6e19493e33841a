"""Preference pairs from right answers alone: the answer is chosen, the same answer with its steps out of order is rejected.

After the motion preferences of SkyReels-V2 (arXiv 2504.13074): rejected clips are made out of good ones by distorting them, so that pairs cost no
labels, and plain DPO is trained on them. This is a text stand-in: steps of an answer for frames of a clip.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from trainers.contract.dataset_tools.answers import make_pair, read_answer_text
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.dataset_tools.steps import StepKind, find_steps, reorder_steps
from trainers.contract.hyperparameters import Strict, param

Distortion = Literal["shuffle", "swap"]
DISTORTIONS: tuple[Distortion, ...] = ("shuffle", "swap")
TOO_FEW, ALL_THE_SAME, BAD = "answers with fewer than two steps", "answers whose steps are all the same", "answers that were labelled bad"
TRIES = 4  # orders drawn for each corruption that is wanted


class Config(Strict):
    distortion: Literal["mix", "shuffle", "swap"] = param(
        "mix", "shuffle: all steps in a random order. swap: two steps change places. mix: one of the two, drawn for each rejected answer."
    )
    steps: StepKind = param(
        "auto", "What a step is. auto: lines where an answer has several, else equations such as 3+3=6, else sentences.", title="Steps are"
    )
    keep_last: bool = param(
        False, "Leave the last step in its place, so that only the way to the result is out of order.", title="Keep the last step"
    )
    per_answer: int = param(1, "Different rejected answers for each right one; short answers may have fewer.", title="Pairs per answer", ge=1, le=16)


class CorruptedAnswers(DatasetTool):
    card = ToolCard(
        name="skyreels-v2",
        title="Corrupted answers as rejected",
        summary="Makes preference pairs without labels: each right answer is chosen, the same answer with its steps shuffled or swapped is rejected. "
        "Train DPO on them.",
        arxiv="2504.13074",
        system="SkyReels-V2",
        departures=(
            "A text stand-in: steps of an answer are put out of order, where the paper distorts video clips.",
            "All rejected answers are distorted ones; the paper also has clips that people rejected.",
            "Where the order of the steps does not matter, the rejected answer is not worse; the tool cannot tell.",
            "The preference loss is DPO on token log-probabilities, not on denoising errors.",
        ),
    )
    suffix = "corrupted"
    forms = {"completion": "preference", "kto": "preference", "preference": "preference"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        if form == "kto" and row.get("label") is not True:
            raise RowDropped(BAD)
        side = "chosen" if form == "preference" else "completion"
        text = read_answer_text(row.get(side))
        steps = find_steps(text, self.config.steps)
        movable = steps[:-1] if self.config.keep_last else steps
        found = dict[str, str]()  # rejected text → what was done
        for _ in range(TRIES * self.config.per_answer):
            kind = rng.choice(DISTORTIONS) if self.config.distortion == "mix" else self.config.distortion
            order = draw_step_order([text[slice(*step)] for step in movable], kind, rng)
            found.setdefault(reorder_steps(text, movable, order), describe_order(order, kind))
            if len(found) == self.config.per_answer:
                break
        return [MadeRow(make_pair(row, side, rejected), note) for rejected, note in found.items()]


def draw_step_order(steps: Sequence[str], kind: Distortion, rng: random.Random) -> list[int]:
    """An order of the steps in which the answer reads differently. Raises RowDropped where there is none."""
    if len(steps) < 2:
        raise RowDropped(TOO_FEW)
    if len(set(steps)) == 1:
        raise RowDropped(ALL_THE_SAME)
    order = list(range(len(steps)))
    if kind == "shuffle":
        rng.shuffle(order)
        if any(steps[place] != steps[source] for place, source in enumerate(order)):
            return order
        order = list(range(len(steps)))  # drew the order it had: two steps change places
    first = rng.randrange(len(steps))
    second = rng.choice([place for place, step in enumerate(steps) if step != steps[first]])
    order[first], order[second] = order[second], order[first]
    return order


def describe_order(order: Sequence[int], kind: Distortion) -> str:
    moved = [place + 1 for place, source in enumerate(order) if place != source]
    if len(moved) == 2:
        return f"steps {moved[0]} and {moved[1]} swapped"
    return f"{len(moved)} of {len(order)} steps moved"
