"""An invented rule book of ten clauses for parcels, cases by rule, and what a text cites of it.

Six clauses refuse a parcel, four lift one of those. A case is refused where a clause that refuses it is not lifted. The clauses that a verdict stands
on are those that refuse the case, and of those that lift them the ones that apply.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ALLOWED, REFUSED = "allowed", "refused"
VERDICTS = (ALLOWED, REFUSED)
DAYS = ("Monday", "Friday", "Sunday")
CONTENTS = ("books", "liquid", "food")
PAPERS = ("permit", "guardian", "seal", "receipt")
NUMBER = r"(\d{1,2})"
CASE = re.compile(
    rf"{NUMBER} kg, sender {NUMBER}, ({'|'.join(DAYS)}), ({'|'.join(CONTENTS)}), worth {NUMBER}, {NUMBER} km((?:, (?:{'|'.join(PAPERS)}))*)\."
)
CITED = re.compile(r"\bc(\d{1,3})\b")


@dataclass(frozen=True)
class ParcelCase:
    weight: int
    age: int
    day: str
    contents: str
    worth: int
    distance: int
    papers: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        papers = "".join(f", {paper}" for paper in self.papers)
        return f"{self.weight} kg, sender {self.age}, {self.day}, {self.contents}, worth {self.worth}, {self.distance} km{papers}."


@dataclass(frozen=True)
class Clause:
    """``lifts``: the number of the clause that it lifts; 0 for one that refuses. ``why``: what of a case it applies to, as a trace says it."""

    number: int
    text: str
    applies: Callable[[ParcelCase], bool]
    why: Callable[[ParcelCase], str]
    lifts: int = 0

    @property
    def id(self) -> str:
        return f"c{self.number}"


BOOK = (
    Clause(1, "No parcel weighs more than 20 kg.", lambda case: case.weight > 20, lambda case: f"{case.weight} kg"),
    Clause(2, "No sender is under 18.", lambda case: case.age < 18, lambda case: f"sender {case.age}"),
    Clause(3, "Nothing is sent on a Sunday.", lambda case: case.day == "Sunday", lambda case: "Sunday"),
    Clause(4, "No liquid is sent.", lambda case: case.contents == "liquid", lambda case: "liquid"),
    Clause(5, "Nothing is worth more than 50.", lambda case: case.worth > 50, lambda case: f"worth {case.worth}"),
    Clause(
        6, "Food goes no further than 30 km.", lambda case: case.contents == "food" and case.distance > 30, lambda case: f"food, {case.distance} km"
    ),
    Clause(7, "A permit lifts clause 1.", lambda case: "permit" in case.papers, lambda case: "permit", lifts=1),
    Clause(8, "A guardian lifts clause 2.", lambda case: "guardian" in case.papers, lambda case: "guardian", lifts=2),
    Clause(9, "A seal lifts clause 4.", lambda case: "seal" in case.papers, lambda case: "seal", lifts=4),
    Clause(10, "A receipt lifts clause 5.", lambda case: "receipt" in case.papers, lambda case: "receipt", lifts=5),
)


def draw_case(rng: random.Random) -> ParcelCase:
    return ParcelCase(
        rng.randint(1, 40),
        rng.randint(10, 60),
        rng.choice(DAYS),
        rng.choice(CONTENTS),
        rng.randint(1, 90),
        rng.randint(1, 60),
        tuple(paper for paper in PAPERS if rng.random() < 0.5),
    )


def read_case(text: str) -> ParcelCase | None:
    """The last case that a text tells; None where there is none."""
    found = list(CASE.finditer(text[-5_000:]))
    if not found:
        return None
    weight, age, day, contents, worth, distance, papers = found[-1].groups()
    told = tuple(paper for paper in papers.split(", ") if paper)
    return ParcelCase(int(weight), int(age), day, contents, int(worth), int(distance), told)


def list_standing_clauses(case: ParcelCase) -> list[Clause]:
    """The clauses that the verdict stands on: each that refuses the case, with the one that lifts it behind it."""
    lifting = {clause.lifts: clause for clause in BOOK if clause.lifts and clause.applies(case)}
    refusing = [clause for clause in BOOK if not clause.lifts and clause.applies(case)]
    return [found for clause in refusing for found in (clause, lifting.get(clause.number)) if found is not None]


def judge_case(case: ParcelCase) -> str:
    standing = list_standing_clauses(case)
    lifted = {clause.lifts for clause in standing}
    return REFUSED if any(not clause.lifts and clause.number not in lifted for clause in standing) else ALLOWED


def write_clause_steps(case: ParcelCase, clauses: Sequence[Clause]) -> str:
    """``c1: 25 kg; c7: permit``: what a trace says of each clause."""
    return "; ".join(f"{clause.id}: {clause.why(case)}" for clause in clauses) or "no clause applies"


def find_cited_clauses(text: str) -> set[int]:
    """Numbers of the clauses that a text cites, whether the book has them or not."""
    return {int(number) for number in CITED.findall(text)}


def compute_citation_f1(cited: set[int], standing: set[int]) -> float:
    """Harmonic mean of precision and recall; 1 where nothing is cited and nothing is to be."""
    if not cited and not standing:
        return 1.0
    both = len(cited & standing)
    return 2 * both / (len(cited) + len(standing))
