"""How far the labellers of a queue agree, in coefficients and in words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from lab.labelling.labels.models import Kind, Queue
from lab.labelling.quality.coefficients import Coefficient, cohen_kappa, fleiss_kappa, krippendorff_alpha, percent_agreement
from lab.labelling.quality.ratings import RatingTable, step_ratings_of
from lab.teams.accounts.models import User

RELIABLE, TENTATIVE = 0.8, 2 / 3  # Krippendorff's customary limits (Content Analysis, 2004, p. 241)
MOST_PEOPLE = 12  # of the table of pairs, by labels
ORDINAL_HELP = {
    Kind.PAIR: "strong vs. slight preference counts less than opposite preferences; tie and both bad are in the middle",
    Kind.RANKING: "for each pair of answers of a ranking: first, tie, second",
    Kind.SINGLE: "bad, neutral, good",
    Kind.CLEARER: "first, tie, second",
}


@dataclass(frozen=True)
class AgreementMeasure:
    coefficient: Coefficient
    help: str
    least: float  # of the drawn scale
    mark: float | None  # chance, on that scale


@dataclass(frozen=True)
class PairwiseKappas:
    """``rows``: (labeller, their cells); a cell is None on and below the diagonal."""

    people: list[User]
    rows: list[tuple[User, list[Coefficient | None]]]
    left_out: int


def compute_agreement_measures(queue: Queue, ratings: RatingTable) -> list[AgreementMeasure]:
    counts, items = ratings.counts(), ratings.items
    ordered = ratings.counts(ordered=True)
    percent = AgreementMeasure(
        percent_agreement(counts, items), "share of label pairs on the same item that agree; not corrected for chance", 0.0, None
    )
    measures = [percent]
    if len(ratings.people) == 2:
        table = ratings.by_labeller()
        both = (table >= 0).all(axis=1)
        cohen = cohen_kappa(table[both, 0], table[both, 1], ratings.size, items[both])
        measures.append(AgreementMeasure(cohen, "agreement beyond chance, for two labellers", -1.0, 0.0))
    measures.append(
        AgreementMeasure(
            fleiss_kappa(counts, items),
            "agreement beyond chance, for any number of labellers; items with the most common number of labels",
            -1.0,
            0.0,
        )
    )
    measures.append(AgreementMeasure(krippendorff_alpha(counts, items, "nominal"), "agreement beyond chance, allows missing labels", -1.0, 0.0))
    ordinal = krippendorff_alpha(ordered, items, "ordinal")
    measures.append(AgreementMeasure(ordinal, f"as above, with verdicts in order: {ORDINAL_HELP[Kind(queue.kind)]}", -1.0, 0.0))
    if queue.steps:
        steps = step_ratings_of(queue)
        alpha = krippendorff_alpha(steps.counts(), steps.items, "ordinal")
        measures.append(
            AgreementMeasure(
                rename_coefficient(alpha, "Krippendorff's alpha, steps"), "of bad, neutral and good steps that two people marked", -1.0, 0.0
            )
        )
    return measures


def rename_coefficient(coefficient: Coefficient, name: str) -> Coefficient:
    return Coefficient(**{**coefficient.__dict__, "name": name})


def interpret_alpha(alpha: Coefficient) -> str:
    """Krippendorff's alpha in words, by its interval."""
    if alpha.value is None:
        return f"Not enough overlap to compute agreement: {alpha.why}."
    if alpha.low is None or alpha.high is None:
        return f"No interval for agreement yet: {alpha.why}."
    if alpha.low >= RELIABLE:
        return "Labellers agree reliably: the whole interval of alpha lies above 0.80."
    if alpha.low >= TENTATIVE:
        return "Labellers agree well enough for tentative conclusions: the whole interval of alpha lies above 0.67, not above 0.80."
    if alpha.high < TENTATIVE:
        low = " Agreement is below chance." if alpha.high < 0 else ""
        remedy = "Clarify the guidelines and adjudicate conflicts first."
        return f"Labellers agree too little to use the labels: the whole interval of alpha lies below 0.67.{low} {remedy}"
    return "Inconclusive: the interval of alpha includes 0.67. More items with several labels narrow it."


def compute_pairwise_kappas(ratings: RatingTable, users: dict[int, User]) -> PairwiseKappas:
    """Cohen's kappa of every two labellers; the ones with most labels when there are many."""
    numbers = [int((ratings.labellers == index).sum()) for index in range(len(ratings.people))]
    places = sorted(range(len(ratings.people)), key=lambda index: (-numbers[index], ratings.people[index]))[:MOST_PEOPLE]
    table = ratings.by_labeller()
    cells: dict[tuple[int, int], Coefficient] = {}
    for first, second in combinations(places, 2):
        both = (table[:, first] >= 0) & (table[:, second] >= 0)
        cells[first, second] = cohen_kappa(table[both, first], table[both, second], ratings.size, ratings.items[both])
    people = [users[ratings.people[index]] for index in places]
    rows = [(users[ratings.people[row]], [cells.get((row, other)) for other in places]) for row in places]
    return PairwiseKappas(people, rows, len(ratings.people) - len(places))
