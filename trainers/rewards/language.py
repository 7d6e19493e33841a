"""How much of a completion is in a language, as py3langid guesses it from letter patterns: good for sentences, useless for single words.

The language consistency reward of DeepSeek-R1 (arXiv 2501.12948, section 2.3.2), which counts words; here lines are guessed and counted by letters.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem
from trainers.rewards.base import RewardFunction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainers.tasks.base import Example

LONGEST = 20_000  # characters that are looked at


class LanguageParameters(Strict):
    language: str = param("en", "ISO 639-1 code: en, de, zh …", title="Language", pattern=r"^[a-z]{2,3}$")
    letters: int = param(20, "Shorter completions have no opinion; shorter lines are joined.", title="Fewest letters", advanced=True, ge=1, le=10_000)


@cache
def load_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class Language(RewardFunction):
    name = "language"
    title = "Language"
    summary = "Share of the completion's letters in lines that py3langid takes for the language. No opinion on very short completions."
    Parameters = LanguageParameters

    @classmethod
    def find_missing(cls, parameters: Any) -> list[Problem]:
        known = load_identifier().labels
        if parameters.language in known:
            return []
        return [Problem("language", parameters.language, "py3langid does not know this language", f"use one of {', '.join(sorted(known))}")]

    def score(self, text: str, example: Example) -> float | None:
        counts = {True: 0, False: 0}
        for piece, letters in split_pieces(text[:LONGEST], self.parameters.letters):
            counts[load_identifier().classify(piece)[0] == self.parameters.language] += letters
        total = sum(counts.values())
        return counts[True] / total if total else None


def split_pieces(text: str, least: int) -> Iterator[tuple[str, int]]:
    """(lines with at least ``least`` letters together, how many they have); what is left over at the end goes with the piece before it."""
    pieces: list[tuple[str, int]] = []
    begun, letters = "", 0
    for line in text.splitlines():
        begun, letters = f"{begun}\n{line}", letters + sum(map(str.isalpha, line))
        if letters >= least:
            pieces.append((begun, letters))
            begun, letters = "", 0
    if pieces and letters:
        last, count = pieces.pop()
        pieces.append((f"{last}\n{begun}", count + letters))
    yield from pieces
