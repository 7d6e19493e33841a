"""A line of commonsense before the question, inferred from its words; answers and preferences stay as they are.

After Fin-Ally (arXiv 2509.24342): what a model of commonsense infers from a dialogue goes into the prompt, x = [u; k], and plain DPO is trained on
the same pairs. Its knowledge comes from COMET; here it comes from rules that a person writes: a word in the question brings its sentence.
"""

from __future__ import annotations

import random
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.dataset_tools.questions import find_user_question, replace_question
from trainers.contract.hyperparameters import Strict, param

NO_RULE = "prompts with none of the words"
GAINING, GIVING = "what is {} is added to what was there.", "what is {} is taken from what was there."
WORDS = {
    **{verb: GAINING.format(done) for verb, done in (("buys", "bought"), ("finds", "found"), ("gets", "got"), ("wins", "won"))},
    **{verb: GIVING.format(done) for verb, done in (("gives away", "given away"), ("loses", "lost"), ("sells", "sold"), ("drops", "dropped"))},
}


def check_rule(text: str) -> str:
    """Raises ValueError, in words for the person who wrote it."""
    word, _, sentence = text.partition(":")
    if not word.strip() or not sentence.strip():
        raise ValueError("a rule is a word, a colon and a sentence")
    return text


Rule = Annotated[str, Field(max_length=300), AfterValidator(check_rule)]


class Config(Strict):
    rules: list[Rule] = param(
        [f"{word}: {sentence[:1].upper()}{sentence[1:]}" for word, sentence in WORDS.items()],
        "word: sentence, several with commas between them. Where the word (or words) occurs in the question, the sentence is put before it.",
        title="Rules",
        min_length=1,
        max_length=100,
    )
    keep_others: bool = param(True, "Keep rows in whose question no rule finds its word, as they are.", title="Keep other rows")


class KnowledgeLines(DatasetTool):
    card = ToolCard(
        name="fin-ally",
        title="Knowledge before the question",
        summary="Puts a line of commonsense before each question, inferred by rules from its words. Answers stay as they are; train on them as "
        "before, and compare with the rows without it.",
        arxiv="2509.24342",
        system="Fin-Ally",
        departures=(
            "Knowledge comes from rules that a person writes, not from a trained model of commonsense.",
            "The line stands before the question; the abstract does not say where.",
            "Known from the abstract only.",
        ),
    )
    suffix = "with knowledge"
    forms = {"preference": "preference", "kto": "kto", "completion": "completion", "prompt": "prompt"}
    Config = Config

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        parts = [rule.partition(":") for rule in self.config.rules]
        self.rules = [(re.compile(rf"(?<!\w){re.escape(word.strip())}(?!\w)", re.IGNORECASE), sentence.strip()) for word, _, sentence in parts]

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        place, question = find_user_question(row.get("prompt"))
        known = list(dict.fromkeys(sentence for word, sentence in self.rules if word.search(question)))
        if not known:
            if self.config.keep_others:
                return [MadeRow(dict(row), "no rule applies: left as it is")]
            raise RowDropped(NO_RULE)
        text = f"{' '.join(known)}\n{question}"
        return [MadeRow({**row, "prompt": replace_question(row["prompt"], place, text)}, f"{len(known)} sentence{'s'[: len(known) > 1]} put before")]
