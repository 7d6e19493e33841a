"""Rows for a judge of pairs out of preference pairs: both answers are shown in both orders, and the right verdict is preferred to the wrong one.

After "On the shelf life of fine-tuned LLM judges" (arXiv 2509.23542): a judge sees a question with a right and a wrong answer of the same generator,
and its verdicts are what is trained on. Made of pairs from an early and from a late checkpoint of one run, such rows are the weak and the strong
generator's part of the study.
"""

from __future__ import annotations

import random
from typing import Any, Literal

from trainers.contract.dataset_tools.answers import MARGIN, read_answer_text, remove_columns
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.pair_judgements import FIRST, PLACES, swap_place, write_judge_question, write_verdict

NO_TEXT = "prompts that are not one text of the user"
SAME = "pairs whose answers are the same"
THINK, END_THINK = "<think>", "</think>"


class Config(Strict):
    orders: Literal["both", "one"] = param("both", "both: each pair in both orders, two rows. one: in one order, drawn for each pair.")
    reason: bool = param(
        False,
        "Put the working of the better answer (between its <think> tags) before the right verdict, as the judge's own. The other has none.",
        title="Reason from the better answer",
    )
    tier: Literal["", "weak", "strong"] = param(
        "", "Written into the column tier: how strong the generator of these pairs was, for judge-shelf-life.", title="Generator"
    )


class JudgePairs(DatasetTool):
    card = ToolCard(
        name="judge-shelf-life",
        title="Judge pairs",
        summary="Makes rows of a judge: question and both answers in, the right verdict preferred to the wrong one. Train DPO or SFT on them.",
        arxiv="2509.23542",
        system="judge shelf life",
        departures=(
            "Verdicts are written by rule; the paper samples a teacher's chains of thought.",
            "Which answer is right is what the pair says: a person's preference, or a reward's.",
        ),
    )
    suffix = "judge pairs"
    forms = {"preference": "preference"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        question = read_question(row.get("prompt"))
        better, worse = read_answer_text(row.get("chosen")), read_answer_text(row.get("rejected"))
        if better.strip() == worse.strip():
            raise RowDropped(SAME)
        places = PLACES if self.config.orders == "both" else (rng.choice(PLACES),)
        return [MadeRow(self.make_row(row, question, better, worse, place), f"the better answer is {place}") for place in places]

    def make_row(self, row: Row, question: str, better: str, worse: str, place: str) -> Row:
        """The better answer stands in ``place``."""
        asked = write_judge_question(question, *((better, worse) if place == FIRST else (worse, better)))
        rest = remove_columns(row, "prompt", "chosen", "rejected", MARGIN)
        reason = find_working_text(better) if self.config.reason else ""
        return {
            **rest,
            "prompt": [{"role": "user", "content": asked}],
            "chosen": [{"role": "assistant", "content": write_verdict(place, reason)}],
            "rejected": [{"role": "assistant", "content": write_verdict(swap_place(place))}],
            **({"tier": self.config.tier} if self.config.tier else {}),
        }


def read_question(prompt: Any) -> str:
    """Raises RowDropped for a prompt that is not one text of the user."""
    if isinstance(prompt, str) and prompt.strip():
        return prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], dict) and prompt[0].get("role") == "user":
        content = prompt[0].get("content")
        if isinstance(content, str) and content.strip():
            return content
    raise RowDropped(NO_TEXT)


def find_working_text(answer: str) -> str:
    """What stands between the first pair of thinking tags; empty where there are none."""
    _, opened, rest = answer.partition(THINK)
    working, closed, _ = rest.partition(END_THINK)
    return working.strip() if opened and closed else ""
