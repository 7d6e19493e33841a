"""How many words an answer shares with the right one, as question answering is scored: the harmonic mean of precision and recall."""

import string
from collections import Counter
from collections.abc import Iterable

ARTICLES = frozenset({"a", "an", "the"})
PUNCTUATION = str.maketrans("", "", string.punctuation)


def split_answer_words(text: str, articles: bool = True) -> list[str]:
    """Lower case, without punctuation; ``articles``: whether a, an and the count as words."""
    words = text.lower().translate(PUNCTUATION).split()
    return words if articles else [word for word in words if word not in ARTICLES]


def compute_f1(answer: Iterable[str], gold: Iterable[str]) -> float:
    """2 P R / (P + R) over words with their counts; over sets where sets are given. 0 where nothing is shared."""
    said, wanted = Counter(answer), Counter(gold)
    shared = sum((said & wanted).values())
    return 2 * shared / (sum(said.values()) + sum(wanted.values())) if shared else 0.0


def is_same_answer(answer: str, gold: str) -> bool:
    """Exact match, but for case, punctuation and articles."""
    return split_answer_words(answer, articles=False) == split_answer_words(gold, articles=False)
