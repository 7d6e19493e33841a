"""The cost-per-win ledger: what each blind win rate took, in hours of training and minutes of labelling."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Sum

from lab.data.datasets.models import Row
from lab.data.loop.models import Match
from lab.data.loop.win_rate import MatchTally, tally_match
from lab.labelling.labels.models import Judgement
from lab.teams.accounts.models import Team
from lab.watching.usage import ledger
from lab.watching.usage.figures import UsageLine, sum_label_seconds
from lab.watching.usage.models import Lease, Quota

SHOWN = 20
EVEN = 0.5


@dataclass(frozen=True)
class CostPerPoint:
    """``cost`` in the team's currency, None without prices. ``points``: percentage points of win rate above one half, None where there are none."""

    spent: UsageLine
    cost: float | None
    points: float | None

    def each(self, amount: float | None) -> float | None:
        return amount / self.points if self.points and amount is not None else None

    @property
    def gpu_hours_each(self) -> float | None:
        return self.each(self.spent.gpu_hours)

    @property
    def compute_hours_each(self) -> float | None:
        return self.each(self.spent.compute_hours)

    @property
    def minutes_each(self) -> float | None:
        return self.each(self.spent.label_minutes)

    @property
    def cost_each(self) -> float | None:
        return self.each(self.cost)


@dataclass(frozen=True)
class WinCost(CostPerPoint):
    """``trained_minutes``: labels in the version the run was trained on; ``judged_minutes``: the blind votes themselves."""

    match: Match
    tally: MatchTally
    trained_minutes: float
    judged_minutes: float


@dataclass(frozen=True)
class WinTotal(CostPerPoint):
    """Of several compared runs; ``won``: how many of them are above one half."""

    won: int


def list_win_costs(team: Team, quota: Quota) -> list[WinCost]:
    """The newest matches with a vote, a few queries each."""
    matches = Match.objects.filter(team=team).exclude(queue=None).select_related("child", "against", "queue", "version").order_by("-created_at")
    tallied = [(match, tally_match(match)) for match in matches[:SHOWN]]
    return [compute_win_cost(match, counted, quota) for match, counted in tallied if counted.rate is not None]


def compute_win_cost(match: Match, counted: MatchTally, quota: Quota) -> WinCost:
    trained, judged = minutes_of_version(match), minutes_of_queue(match)
    spent = UsageLine(str(match.child), label_minutes=trained + judged)
    for gpus, time in Lease.objects.filter(run=match.child).order_by().values_list("gpus").annotate(time=Sum(ledger.build_lease_duration())):
        spent.add(gpus, time.total_seconds() / ledger.HOUR, match.child.number)
    rate = counted.rate
    points = (rate.value - EVEN) * 100 if rate and rate.value > EVEN else None
    return WinCost(spent, spent.cost(quota), points, match, counted, trained, judged)


def total_by_recipe(wins: list[WinCost], quota: Quota) -> list[WinTotal]:
    """A line for each recipe and, last, one for all: what every run took, also of those that did not win, against the points of those that did.

    Of comparisons with enough votes, a run's newest only. Labels that several runs were trained on count once in each line.
    """
    counted: dict[UUID, WinCost] = {}
    for win in wins:  # the newest comes first
        if win.tally.shown_rate is not None:
            counted.setdefault(win.match.child_id, win)
    recipes = sorted({win.match.child.recipe for win in counted.values()})
    lines = [add_up(recipe, [win for win in counted.values() if win.match.child.recipe == recipe], quota) for recipe in recipes]
    return [*lines, add_up("", list(counted.values()), quota)] if lines else []


def add_up(title: str, wins: list[WinCost], quota: Quota) -> WinTotal:
    trained = {win.match.version_id: win.trained_minutes for win in wins}
    spent = UsageLine(
        title,
        gpu_hours=sum(win.spent.gpu_hours for win in wins),
        compute_hours=sum(win.spent.compute_hours for win in wins),
        label_minutes=sum(trained.values()) + sum(win.judged_minutes for win in wins),
        runs={win.match.child.number for win in wins},
    )
    points = [win.points for win in wins if win.points is not None]
    return WinTotal(spent, spent.cost(quota), sum(points) or None, len(points))


def minutes_of_version(match: Match) -> float:
    """Of the labels of the items whose pairs the run was trained on."""
    if match.version_id is None:
        return 0.0
    items = Row.objects.filter(version=match.version, item__isnull=False).values("item")
    return (Judgement.objects.of(match.team).counting().filter(item__in=items).aggregate(sum=sum_label_seconds())["sum"] or 0.0) / 60


def minutes_of_queue(match: Match) -> float:
    return (Judgement.objects.of(match.team_id).counting().filter(queue=match.queue_id).aggregate(sum=sum_label_seconds())["sum"] or 0.0) / 60
