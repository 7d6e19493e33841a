"""Which runs a comparison is of, and how each is drawn wherever it appears."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.http import QueryDict

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run

MOST = 20
COLORS = 8
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True)
class RunStyle:
    """``color``: 1 to 8, a series colour of lab.css; ``dash`` as Plotly names it. Forty combinations before one comes again."""

    color: int
    dash: str


def style_of(number: int) -> RunStyle:
    """From the run's number alone, so that a run looks the same whatever stands beside it."""
    return RunStyle((number - 1) % COLORS + 1, DASHES[(number - 1) // COLORS % len(DASHES)])


@dataclass(frozen=True)
class ChosenRuns:
    """The team's runs that the address names, in its order; ``notes`` says what was left out and why."""

    runs: list[Run]
    notes: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        return [run.number for run in self.runs]

    @property
    def training(self) -> list[Run]:
        return [run for run in self.runs if run.is_open]

    def query(self, numbers: Iterable[int]) -> str:
        query = QueryDict(mutable=True)
        query.setlist("run", [str(number) for number in numbers])
        return f"?{query.urlencode()}" if query else "?"

    def without(self, run: Run) -> str:
        return self.query(number for number in self.numbers if number != run.number)

    def adding(self, run: Run) -> str:
        return self.query([*self.numbers, run.number])


def read_chosen_runs(team: Team, parameters: Sequence[str]) -> ChosenRuns:
    """``parameters`` are run numbers as the address writes them (also ``#3`` and ``3,4``); at most MOST runs."""
    words = list(dict.fromkeys(word.strip().removeprefix("#") for text in parameters for word in text.split(",") if word.strip()))
    numbers = [number for word in words if (number := parse_whole_number(word, MAX_INTEGER)) is not None]
    known = {run.number: run for run in Run.objects.of(team).filter(number__in=numbers).select_related("parent", "created_by")}
    runs = [known[number] for number in dict.fromkeys(numbers) if number in known]
    unknown = [word[:40] for word in words if parse_whole_number(word, MAX_INTEGER) not in known]
    notes = []
    if unknown:
        these = ", ".join(f"#{word}" for word in unknown[:MOST])
        notes.append(f"Your team has no run {these}; {'it is' if len(unknown) == 1 else 'they are'} ignored. Search for a run by name below.")
    if len(runs) > MOST:
        notes.append(f"{MOST} runs can be compared at once; the last {len(runs) - MOST} of the URL were ignored.")
    return ChosenRuns(runs[:MOST], notes)
