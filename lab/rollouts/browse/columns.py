"""Which columns the table has; ``lab.lib.column_choice`` says which of them a person sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.utils.safestring import SafeString

from lab.lib.registry import Registry
from lab.rollouts.browse import cells
from lab.rollouts.browse.cells import TableRow
from lab.rollouts.browse.fields import COMPONENT, field_named
from lab.rollouts.trajectories.text_pieces import escape_invisible_text
from lab.teams.accounts.models import Team

USUAL_COMPONENTS = 6  # reward functions with a column of their own unless the person says otherwise
MOST_COMPONENTS = 60
COLLAPSED = "*same"  # in ``cols``: equal completions of a group are one row
TABLE = "rollouts"  # the name under which its columns are remembered


@dataclass(frozen=True)
class Column:
    """``kind`` num is right-aligned; ``usual`` is shown unless hidden. A column that can be sorted by is named as its field.

    ``load`` is asked once for the rollouts of a page on which the column is seen, and says by rollout what ``cell`` finds in ``TableRow.loaded``.
    """

    name: str
    label: str
    cell: Callable[[TableRow], SafeString]
    kind: str = "num"
    usual: bool = True
    help: str = ""
    load: Callable[[Team, Sequence[Any]], Mapping[int, Any]] | None = None

    @property
    def full_label(self) -> str:
        """As the menu says it."""
        return self.label

    @property
    def sortable(self) -> bool:
        known = field_named(self.name)
        return known is not None and known.sortable


def make_number_cell(name: str) -> Callable[[TableRow], SafeString]:
    def cell(row: TableRow) -> SafeString:
        return cells.render_number_cell(getattr(row.rollout, name))

    return cell


def make_integer_cell(name: str) -> Callable[[TableRow], SafeString]:
    def cell(row: TableRow) -> SafeString:
        value = getattr(row.rollout, name)
        return cells.NOTHING if value is None else cells.render_integer_cell(value)

    return cell


def render_advantage_cell(row: TableRow) -> SafeString:
    return cells.render_signed_cell(row.rollout.advantage)


def render_reward_cell(row: TableRow) -> SafeString:
    return cells.render_signed_cell(row.rollout.reward)


FIRST = (
    Column("run", "Run", cells.render_run_cell, "text", help="The run it was sampled in."),
    Column("step", "Step", cells.render_step_cell),
    Column("group", "Group", cells.render_group_cell, help="Which prompt of the step."),
    Column("sample", "Sample", make_integer_cell("sample"), help="Which answer to the prompt."),
    Column("prompt", "Prompt", cells.render_prompt_cell, "long"),
    Column("completion", "Completion", cells.render_completion_cell, "long"),
    Column("reward", "Reward", render_reward_cell, help="The total."),
)
LAST = (
    Column("advantage", "Advantage", render_advantage_cell, help="After all methods."),
    Column("length", "Length", make_integer_cell("length"), help="Tokens of the completion."),
    Column("mean_entropy", "Entropy", make_number_cell("mean_entropy"), help="Mean over the completion's tokens, in nats."),
    Column("max_entropy", "Max entropy", make_number_cell("max_entropy"), usual=False, help="Of the most uncertain token, in nats."),
    Column("finish", "Ended", cells.render_finish_cell, "text", usual=False, help="Why the completion ended."),
    Column("filtered", "Dropped", cells.render_filtered_cell, "text", usual=False, help="Why it was excluded from training."),
    Column("tags", "Tags", cells.render_tags_cell, "text", usual=False),
    Column("rating", "Rating", cells.render_rating_cell, help="Mean rating, 1 to 5."),
    Column("comments", "Comments", cells.render_comments_cell, usual=False),
)
FURTHER: Registry[Column] = Registry("column")  # of rooms that may not be imported here


def build_component_columns(names: Sequence[str]) -> list[Column]:
    """A column for each reward function of the runs in view."""
    return [
        Column(
            COMPONENT + name,
            escape_invisible_text(name),
            partial(cells.render_component_cell, name=name),
            usual=at < USUAL_COMPONENTS,
            help=f"Value of the reward function {name}.",
        )
        for at, name in enumerate(names[:MOST_COMPONENTS])
    ]


def build_table_columns(names: Sequence[str], one_run: bool) -> list[Column]:
    """Every column there is; the run's own is not usual where every row is of the same run."""
    first = [Column("run", "Run", cells.render_run_cell, "text", usual=not one_run, help=FIRST[0].help), *FIRST[1:]]
    return [*first, *build_component_columns(names), *LAST, *FURTHER.values()]


def load_column_data(columns: Iterable[Column], team: Team, rollouts: Sequence[Any]) -> dict[int, dict[str, Any]]:
    """What the columns need to know about the rollouts of a page, by rollout and column."""
    loaded: dict[int, dict[str, Any]] = {rollout.pk: {} for rollout in rollouts}
    for column in columns:
        for rollout, known in column.load(team, rollouts).items() if column.load else ():
            loaded[rollout][column.name] = known
    return loaded
