"""Which columns the table has and which of them a person sees. ``cols`` in an address lists what differs from the usual ones:
``-prompt,max_entropy`` hides the prompt and shows the largest entropy; names are percent-encoded, because reward functions are called anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from django.utils.html import format_html
from django.utils.safestring import SafeString

from lab.accounts.models import Team
from lab.browse import cells
from lab.browse.cells import Row
from lab.browse.fields import COMPONENT, field_named
from lab.trajectories.pieces import named

USUAL_COMPONENTS = 6  # reward functions with a column of their own unless the person says otherwise
MOST_COMPONENTS = 60
MOST_CHANGES = 80  # names in ``cols``


@dataclass(frozen=True)
class Column:
    """``kind`` num is right-aligned; ``usual`` is shown unless hidden. A column that can be sorted by is named as its field.

    ``load`` is asked once for the rollouts of a page on which the column is seen, and says by rollout what ``cell`` finds in ``Row.loaded``.
    """

    name: str
    label: str
    cell: Callable[[Row], SafeString]
    kind: str = "num"
    usual: bool = True
    help: str = ""
    load: Callable[[Team, Sequence[Any]], Mapping[int, Any]] | None = None

    @property
    def sortable(self) -> bool:
        known = field_named(self.name)
        return known is not None and known.sortable


def value(name: str) -> Callable[[Row], SafeString]:
    def cell(row: Row) -> SafeString:
        return cells.number(getattr(row.rollout, name))

    return cell


def whole(name: str) -> Callable[[Row], SafeString]:
    def cell(row: Row) -> SafeString:
        return cells.whole(getattr(row.rollout, name))

    return cell


def advantage(row: Row) -> SafeString:
    return cells.signed(row.rollout.advantage)


def reward(row: Row) -> SafeString:
    return cells.signed(row.rollout.reward)


FIRST = (
    Column("run", "Run", cells.run, "text", help="The run it was sampled in."),
    Column("step", "Step", cells.step),
    Column("group", "Group", cells.group, help="Which prompt of the step."),
    Column("sample", "Sample", whole("sample"), help="Which answer to the prompt."),
    Column("prompt", "Prompt", cells.prompt, "long"),
    Column("completion", "Completion", cells.completion, "long"),
    Column("reward", "Reward", reward, help="The total."),
)
LAST = (
    Column("advantage", "Advantage", advantage, help="After every method."),
    Column("length", "Length", whole("length"), help="Tokens of the completion."),
    Column("mean_entropy", "Entropy", value("mean_entropy"), help="Mean over the completion's tokens, in nats."),
    Column("max_entropy", "Max entropy", value("max_entropy"), usual=False, help="Of the most uncertain token, in nats."),
    Column("finish", "Ended", cells.finish, "text", help="Why the completion ended."),
    Column("filtered", "Dropped", cells.filtered, "text", usual=False, help="Why it was kept out of training."),
    Column("tags", "Tags", cells.tags, "text"),
    Column("rating", "Rating", cells.rating, help="The mean of what people gave, 1 to 5."),
    Column("comments", "Comments", cells.comments, usual=False),
)
FURTHER: list[Column] = []  # of rooms that may not be imported here


def components(names: Sequence[str]) -> list[Column]:
    """A column for each reward function of the runs in view."""
    return [
        Column(
            COMPONENT + name,
            named(name),
            partial(cells.component, name=name),
            usual=at < USUAL_COMPONENTS,
            help=f"What the reward function {name} gave.",
        )
        for at, name in enumerate(names[:MOST_COMPONENTS])
    ]


@dataclass(frozen=True)
class Choice:
    """What a person changed about the usual columns."""

    shown: frozenset[str] = frozenset()
    hidden: frozenset[str] = frozenset()

    @classmethod
    def read(cls, text: str) -> Choice:
        names = [unquote(part) for part in text.split(",")[:MOST_CHANGES] if part]
        return cls(
            frozenset(name for name in names if not name.startswith("-")), frozenset(name[1:] for name in names if name.startswith("-") and name[1:])
        )

    @classmethod
    def of(cls, columns: Iterable[Column], wanted: Iterable[str]) -> Choice:
        """The choice under which, of ``columns``, those named in ``wanted`` are seen."""
        seen, offered = set(wanted), list(columns)
        return cls(
            frozenset(column.name for column in offered if column.name in seen and not column.usual),
            frozenset(column.name for column in offered if column.name not in seen and column.usual),
        )

    def __str__(self) -> str:
        return ",".join(sorted("-" + quote(name, safe="") for name in self.hidden) + sorted(quote(name, safe="") for name in self.shown))

    def sees(self, column: Column) -> bool:
        return column.name in self.shown or (column.usual and column.name not in self.hidden)


def table(names: Sequence[str], one_run: bool) -> list[Column]:
    """Every column there is; the run's own is not usual where every row is of the same run."""
    first = [Column("run", "Run", cells.run, "text", usual=not one_run, help=FIRST[0].help), *FIRST[1:]]
    return [*first, *components(names), *LAST, *FURTHER]


def drawn(rows: Iterable[Row], columns: Sequence[Column]) -> Iterator[SafeString]:
    """Each row's cells; the completion is its header."""
    frames = [(frame(column), column.cell, SafeString("</th>" if column.name == "completion" else "</td>")) for column in columns]
    for row in rows:
        yield SafeString("".join(part for start, cell, end in frames for part in (start, cell(row), end)))


def loaded(columns: Iterable[Column], team: Team, rollouts: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """What the columns need to know about the rollouts of a page, by rollout and column."""
    found: dict[int, dict[str, Any]] = {rollout.pk: {} for rollout in rollouts}
    for column in columns:
        for rollout, known in column.load(team, rollouts).items() if column.load else ():
            found[rollout][column.name] = known
    return found


def frame(column: Column) -> SafeString:
    """With the column's name where a phone, whose rows are blocks, has to say it in the cell."""
    if column.name == "completion":
        return format_html('<th scope="row" class="{} c-{}">', column.kind, column.name)
    if column.name in ROOMY:
        return format_html('<td class="{} c-{}">', column.kind, column.name)
    return format_html('<td class="{}" data-label="{}">', column.kind, column.label)


ROOMY = ("prompt", "completion", "run", "tags")  # columns that the style sheet gives a width
