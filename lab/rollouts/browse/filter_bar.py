"""What stands above the table: the runs to choose from, the filters that are set and can be added, and what is wrong with an address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from typing import Any

from django.core.cache import caches
from django.utils.safestring import SafeString

from lab.lib.numbers import MAX_INTEGER, format_compact_count, parse_whole_number
from lab.rollouts.browse.address import Adding, Address
from lab.rollouts.browse.conditions import load_listed_runs
from lab.rollouts.browse.fields import COMPONENT, FIELDS, OPERATOR_LABELS, Field, field_named
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import escape_invisible_text
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from trainers.contract.problems import Problem

OFFERED_RUNS = 100  # in the picker at once; further ones are found by number or name
NEWEST_RUNS = 12  # in the picker before it is opened
KEPT = 1024  # choices of runs as HTML, by all that they show
ASKED_RUNS = 20  # whose reward functions are offered
IN_BAR = ("q", "re")  # problems with these stand at their own field


@dataclass(frozen=True)
class Chip:
    """A condition in words and the address without it."""

    words: str
    without: str


@dataclass(frozen=True)
class FilterBar:
    runs: list[Run]
    chosen: frozenset[int]  # numbers of runs
    more_runs: bool
    offers_all: bool  # the picker has asked for what it can hold; before, it has only the newest
    chips: list[Chip]
    components: list[str]
    adding: Adding
    words: str
    pattern: str
    problems: dict[str, Problem]  # by the field they stand at
    other_problems: list[Problem]

    @property
    def fields(self) -> list[Field]:
        """What can be filtered by; a property, because the page keeps the list it has drawn for the same reward functions."""
        named_after = [field_named(COMPONENT + name) for name in self.components]
        return [*FIELDS.values(), *(replace(field, label=escape_invisible_text(field.label)) for field in named_after if field)]

    @property
    def run_choices(self) -> SafeString:
        """The boxes of the picker's runs. Written here: a template takes several times as long, and few of them change between two pages."""
        return SafeString("".join(render_run_choice(run.number, run.name, run.rollouts, run.number in self.chosen) for run in self.runs))

    @property
    def chosen_field(self) -> Field | None:
        return field_named(self.adding.field)


@lru_cache(KEPT)
def render_run_choice(number: int, name: str, rollouts: int, is_chosen: bool) -> str:
    name = escape(name)
    return (
        f'<label class="check"><input type="checkbox" name="run" value="{number}" {"checked" if is_chosen else ""}>'
        f'<span class="ellipsis" title="{name}"><span class="muted">#{number}</span> {name}</span>'
        f'<span class="muted small row-end">{format_compact_count(rollouts)}</span></label>'
    )


def filter_bar(
    address: Address, runs: list[Run], components: Sequence[str], further: Sequence[Problem] = (), offered: int = OFFERED_RUNS
) -> FilterBar:
    """``further``: what turned out to be wrong only when the rollouts were read. ``offered``: as of ``runs_to_choose``."""
    selection = address.selection
    problems = [*selection.problems, *further]
    at_field = {problem.field: problem for problem in problems if problem.field in (*IN_BAR, "adding")}
    others = [replace(problem, value=problem.value[:80]) for problem in problems if problem.field not in at_field]
    return FilterBar(
        runs=runs[: max(offered, len(address.selection.runs))],
        chosen=frozenset(selection.runs),
        more_runs=len(runs) > max(offered, len(address.selection.runs)),
        offers_all=offered == OFFERED_RUNS,
        chips=build_filter_chips(address),
        components=list(components),
        adding=address.adding,
        words=at_field["q"].value if "q" in at_field else selection.words,
        pattern=at_field["re"].value if "re" in at_field else selection.pattern,
        problems=at_field,
        other_problems=others,
    )


def runs_to_choose(team: Team, chosen: Sequence[int], find: str = "", offered: int = OFFERED_RUNS) -> list[Run]:
    """The chosen ones first, then the newest; more than ``offered`` where there are more. ``find`` is a number or a part of a name."""
    most = len(chosen) + offered + 1
    first = "ORDER BY number = ANY(%(chosen)s) DESC, number DESC LIMIT %(most)s"
    if find:
        number = parse_whole_number(find.removeprefix("#"), MAX_INTEGER)
        fits = "AND (strpos(upper(name), upper(%(find)s)) > 0 OR number = %(number)s OR number = ANY(%(chosen)s))"
        choices = load_listed_runs(team, f"{fits} {first}", chosen=list(chosen), most=most, find=find, number=number)
    else:
        choices = load_listed_runs(team, first, chosen=list(chosen), most=most)
    place = {number: at for at, number in enumerate(chosen)}
    return sorted(choices, key=lambda run: place.get(run.number, len(place)))  # the rest keeps its order


def build_filter_chips(address: Address) -> list[Chip]:
    selection = address.selection
    chips = [
        Chip(escape_invisible_text(one.label), address.url(filters=tuple(other for other in selection.filters if other != one)))
        for one in selection.filters
    ]
    if selection.words:
        chips.append(Chip(f"Text: {escape_invisible_text(selection.words)}", address.url(words="")))
    if selection.pattern:
        chips.append(Chip(f"Matches /{escape_invisible_text(selection.pattern)}/", address.url(pattern="")))
    if selection.tries:
        chips.append(Chip("Including replayed steps", address.url(tries=False)))
    return chips


def components_of(runs: Sequence[Run], rows: Iterable[Any]) -> list[str]:
    """Names of the reward functions in view: those of the rows, then of the newest rollout of each of the runs."""
    asked = sorted((run for run in runs[:ASKED_RUNS] if run.last_rollout), key=lambda run: -run.last_rollout)
    components: dict[str, None] = {}
    for names in [*(row.rewards for row in rows), *read_reward_names(asked)]:
        components |= dict.fromkeys(names)
    return [name for name in components if field_named(COMPONENT + name)]


def read_reward_names(runs: Sequence[Run]) -> list[list[str]]:
    """The names of the reward functions of each run's newest rollout; kept by the rollout, whose rewards never change."""
    keys = {run.last_rollout: f"reward-names:{run.pk}:{run.last_rollout}" for run in runs}
    names: dict[str, list[str]] = caches["process"].get_many(keys.values())
    if unknown := [pk for pk, key in keys.items() if key not in names]:
        stored = Rollout.objects.filter(pk__in=unknown, run__in=list(runs)).values_list("pk", "rewards")
        fresh = {keys[pk]: list(rewards) for pk, rewards in stored}
        caches["process"].set_many(fresh)
        names |= fresh
    return [names[key] for key in keys.values() if key in names]


OPERATORS = [{"value": name, "label": label} for name, label in OPERATOR_LABELS.items()]
