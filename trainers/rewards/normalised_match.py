"""Whether the answer is the reference once case, articles, punctuation and forms of Unicode are left aside, as question answering is scored.

The steps are those of SQuAD's evaluation (Rajpurkar et al. 2016, arXiv 1606.05250): lower case, punctuation, articles, space. Two differ, so that
3.5 is not 35 and -5 is not 5: punctuation inside a number and a minus before one stay.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from trainers.contract.hyperparameters import param
from trainers.rewards.answers import AnswerPlace, find_answer, find_reference
from trainers.rewards.base import RewardFunction
from trainers.rewards.scores import UnusableRow

if TYPE_CHECKING:
    from trainers.tasks.base import Example

ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
MINUSES = dict.fromkeys(map(ord, "\u2212\u2010\u2011\ufe63\uff0d"), "-")


class NormalisedMatchParameters(AnswerPlace):
    case: bool = param(True, "Upper and lower case are the same.", title="Ignore case")
    punctuation: bool = param(True, "Punctuation is left out, except in numbers.", title="Ignore punctuation")
    articles: bool = param(True, "The words a, an and the are left out.", title="Ignore articles")
    accents: bool = param(False, "Letters with and without accents are the same.", title="Ignore accents")
    separator: str = param("", "Text between several right answers in a reference; empty: it holds one.", title="Separator", max_length=20)


class NormalisedMatch(RewardFunction):
    name = "normalised-match"
    title = "Normalised match"
    summary = "1 where answer and reference are the same but for case, punctuation, articles, space and forms of Unicode."
    Parameters = NormalisedMatchParameters

    def score(self, text: str, example: Example) -> float | None:
        chosen: NormalisedMatchParameters = self.parameters
        reference = find_reference(example, chosen)
        right = {normalise_text(one, chosen) for one in (reference.split(chosen.separator) if chosen.separator else [reference])} - {""}
        if not right:
            raise UnusableRow("nothing is left of the row's reference")
        answer = find_answer(text, example, chosen)
        return float(answer is not None and normalise_text(answer, chosen) in right)


def normalise_text(text: str, chosen: NormalisedMatchParameters) -> str:
    """NFKC, then what ``chosen`` ignores; single spaces. A text of articles alone keeps them."""
    text = unicodedata.normalize("NFKC", text).translate(MINUSES)
    if chosen.case:
        text = text.casefold()
    if chosen.accents:
        text = "".join(char for char in unicodedata.normalize("NFD", text) if not unicodedata.combining(char))
    if chosen.punctuation:
        text = "".join(char if keeps_character(text, place) else " " for place, char in enumerate(text))
    if chosen.articles and (without := ARTICLES.sub(" ", text)).strip():
        text = without
    return " ".join(text.split())


def keeps_character(text: str, place: int) -> bool:
    """Whether a character is no punctuation, or part of a number."""
    char = text[place]
    if not unicodedata.category(char).startswith("P"):
        return True
    after = text[place + 1 : place + 2].isdigit()
    before = text[place - 1 : place].isalnum() if place else False
    return after and (text[place - 1 : place].isdigit() if char in ".,:/" else char == "-" and not before)
