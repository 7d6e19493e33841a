"""How much of a reference text's wording the answer shares: BLEU, ROUGE-L or chrF.

BLEU: Papineni et al. 2002, eq. 1 to 3, with add-one smoothing above single words (Lin and Och 2004, "ORANGE", sentence BLEU).
ROUGE-L: Lin 2004, eq. 2 to 4 with beta = 1: F1 of the longest common subsequence. chrF: Popović 2015, eq. 1, beta = 2, averaged over n = 1 … 6 of
characters without spaces, leaving out orders that neither text reaches, as sacrebleu 2 does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from trainers.contract.hyperparameters import param
from trainers.rewards.answers import AnswerPlace, find_answer, find_reference
from trainers.rewards.base import RewardFunction
from trainers.rewards.ngrams import count_ngrams, split_words

if TYPE_CHECKING:
    from trainers.tasks.base import Example

BLEU_ORDER, CHRF_ORDER, CHRF_BETA = 4, 6, 2.0
LONGEST = 20_000  # words or characters read of either text


class NgramSimilarityParameters(AnswerPlace):
    measure: Literal["bleu", "rouge-l", "chrf"] = param("rouge-l", "Which similarity.", title="Measure")


class NgramSimilarity(RewardFunction):
    name = "ngram-similarity"
    title = "N-gram similarity"
    summary = "How much wording answer and reference share, 0 to 1: sentence BLEU, ROUGE-L or chrF."
    Parameters = NgramSimilarityParameters

    def score(self, text: str, example: Example) -> float | None:
        reference, answer = find_reference(example, self.parameters), find_answer(text, example, self.parameters) or ""
        if self.parameters.measure == "chrf":
            return compute_chrf(answer[:LONGEST], reference[:LONGEST])
        words, wanted = split_words(answer)[:LONGEST], split_words(reference)[:LONGEST]
        return compute_bleu(words, wanted) if self.parameters.measure == "bleu" else compute_rouge_l(words, wanted)


def compute_bleu(words: Sequence[str], reference: Sequence[str]) -> float:
    """Brevity penalty times the geometric mean of the clipped precisions of 1- to 4-grams."""
    if not words or not reference:
        return 0.0
    logs = []
    for size in range(1, BLEU_ORDER + 1):
        own, other = count_ngrams(words, size), count_ngrams(reference, size)
        same, smoothing = (own & other).total(), int(size > 1)
        if same + smoothing == 0:
            return 0.0
        logs.append(math.log((same + smoothing) / (own.total() + smoothing)))
    return math.exp(min(0.0, 1 - len(reference) / len(words)) + sum(logs) / BLEU_ORDER)


def compute_rouge_l(words: Sequence[str], reference: Sequence[str]) -> float:
    same = measure_common_subsequence(words, reference)
    return 2 * same / (len(words) + len(reference)) if same else 0.0


def measure_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence, with the rows of the table as bits of one number (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    row = full = (1 << len(first)) - 1
    for word in second:
        met = row & places.get(word, 0)
        row = (row + met | row - met) & full
    return len(first) - row.bit_count()


def compute_chrf(text: str, reference: str) -> float:
    own, other = ("".join(one.split()) for one in (text, reference))
    precisions, recalls = [], []
    for size in range(1, CHRF_ORDER + 1):
        mine, theirs = count_ngrams(own, size), count_ngrams(other, size)
        if mine and theirs:
            same = (mine & theirs).total()
            precisions.append(same / mine.total())
            recalls.append(same / theirs.total())
    precision, recall = (sum(values) / max(1, len(values)) for values in (precisions, recalls))
    if precision + recall == 0:
        return 0.0
    return (1 + CHRF_BETA**2) * precision * recall / (CHRF_BETA**2 * precision + recall)
