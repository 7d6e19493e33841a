"""How long a trained judge stays useful: the five differences of arXiv 2509.23542, each defined here once. Imports no torch.

Acc_e(J_d): consistent accuracy of a judge trained on answers of generator d, on pairs of generator e; weak = older, strong = newer.

    FutureProof      = Acc_strong(J_weak) - Acc_weak(J_weak)        an old judge on new answers
    RefreshAdvantage = Acc_strong(J_new) - Acc_strong(J_weak)       what training again gains on new answers
    BackCompat       = Acc_weak(J_new) - Acc_weak(J_weak)           what it costs on old ones
    CompatShift      = Acc_weak(J_new) - Acc_strong(J_new)          the new judge: old against new answers
    QuestionGen      = Acc_unseen(J) - Acc_seen(J)                  any judge: questions that it was not trained on

J_new is the judge trained on strong answers, or one trained on weak answers first and then on strong ones ("continual").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WEAK, STRONG, CONTINUAL = "weak", "strong", "continual"
SEEN, UNSEEN = "seen", "unseen"
Place = tuple[str, str]  # what the judge was trained on, what it is measured on


@dataclass(frozen=True)
class JudgeDifference:
    """Accuracy at ``plus`` minus accuracy at ``minus``. ``judge``: whose number it is."""

    name: str
    judge: str
    plus: Place
    minus: Place


def list_judge_differences(trained: Iterable[str]) -> list[JudgeDifference]:
    """Of judges trained on ``weak`` and others: FutureProof of the weak one, three differences of each other, QuestionGen of all. In that order."""
    judges = list(trained)
    found = [JudgeDifference("FutureProof", WEAK, (WEAK, STRONG), (WEAK, WEAK))] if WEAK in judges else []
    for new in [judge for judge in judges if judge != WEAK]:
        if WEAK in judges:
            found.append(JudgeDifference("RefreshAdvantage", new, (new, STRONG), (WEAK, STRONG)))
            found.append(JudgeDifference("BackCompat", new, (new, WEAK), (WEAK, WEAK)))
        found.append(JudgeDifference("CompatShift", new, (new, WEAK), (new, STRONG)))
    return [*found, *(JudgeDifference("QuestionGen", judge, (judge, UNSEEN), (judge, SEEN)) for judge in judges)]


def compute_judge_differences(accuracies: Mapping[Place, float]) -> dict[tuple[str, str], float]:
    """(name, judge) -> the difference, of all whose two accuracies are known."""
    trained = dict.fromkeys(judge for judge, _ in accuracies)
    return {
        (one.name, one.judge): accuracies[one.plus] - accuracies[one.minus]
        for one in list_judge_differences(trained)
        if one.plus in accuracies and one.minus in accuracies
    }
