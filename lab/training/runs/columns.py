"""Which columns the table of runs has: the usual ones, further numbers and facts, and every setting of a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Case, F, FloatField, Func, JSONField, Value, When
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Extract, Now, NullIf

from lab.lib.column_choice import ColumnChoice
from lab.lib.numbers import format_compact_count, format_number
from lab.lib.timeago import format_duration
from lab.training.runs.config_fields import ConfigField, format_config_value, read_config_field, read_config_values
from lab.training.runs.curve_figures import FIGURES, read_curve_figures
from lab.training.runs.curve_values import WORDS
from lab.training.runs.header import compute_elapsed_seconds
from lab.training.runs.models import Run
from lab.training.runs.reward_weights import collect_reward_weights
from lab.training.runs.stack import stack_of
from trainers.contract.stacking import DEFAULT_BASES

FIXED = "name"  # always seen: it leads to the run
CONFIG = "config."  # before the name of a setting


@dataclass(frozen=True)
class RunColumn:
    """``usual`` columns have cells of their own in the template, others the text that ``write`` makes of what is known of a run.

    ``order``: what the database sorts runs by, ``key`` how the address says it; ``words``: how a number is read. ``kind``: classes of the cells.
    """

    name: str
    label: str
    kind: str = ""
    usual: bool = False
    order: Any = None
    key: str = ""
    words: str = ""
    write: Callable[[Known], str] | None = None
    reads_spec: bool = False
    figure: str = ""  # of its curves

    @property
    def full_label(self) -> str:
        """As the menu says it: numbers with how they are read."""
        return f"{self.label}, {self.words}" if self.words else self.label


@dataclass(frozen=True)
class Known:
    """What the cells of a run are written from; ``figures`` of its curves by key, ``config`` its settings, if a column asks for them."""

    run: Run
    figures: dict[str, float]
    config: dict[str, Any]


def read_stored_number(name: str) -> Func:
    """A number of ``latest``; NULL for what is none, such as NaN by its name."""
    found = Func(F("latest"), Value(f'$.{name} ? (@.type() == "number")'), function="jsonb_path_query_first", output_field=JSONField())
    return Func(found, template="(%(expressions)s)::float8", output_field=FloatField())


def _make_stored_column(name: str, label: str, stored: str, words: str, kind: str = "num", usual: bool = False) -> RunColumn:
    def write(known: Known) -> str:
        return format_number(known.run.latest.get(stored))

    return RunColumn(name, label, kind, usual, read_stored_number(stored), name, words, write)


def _make_count_column(name: str, label: str) -> RunColumn:
    return RunColumn(name, label, "num", order=F(name), key=name, write=lambda known: format_compact_count(getattr(known.run, name)))


def _make_figure_column(name: str, figure: str) -> RunColumn:
    one = FIGURES[figure]
    return RunColumn(
        name,
        one.label,
        "num",
        words=one.words,
        figure=figure,
        write=lambda known: format_number(known.figures[figure]) if figure in known.figures else "",
    )


def _write_seconds(known: Known) -> str:
    seconds = compute_elapsed_seconds(known.run)
    return "" if seconds is None else format_duration(seconds)


BASE_NAME = Coalesce(
    NullIf(KeyTransform("name", KeyTransform("base", "spec")), Value(None, JSONField())),
    Case(*(When(trainer=trainer, then=Value(base, JSONField())) for trainer, base in DEFAULT_BASES.items()), output_field=JSONField()),
    output_field=JSONField(),
)
METHOD_NAMES = Func(F("spec"), Value("$.methods[*].name"), function="jsonb_path_query_array", output_field=JSONField())
SECONDS = Extract(Coalesce("finished_at", Now()) - F("started_at"), "epoch")

USUAL = (
    RunColumn("status", "Status", "c-status", True, key="status"),
    RunColumn("name", "Run", "c-name", True, key="name"),
    RunColumn("recipe", "Recipe", "c-recipe", True, key="recipe"),
    RunColumn("policy", "Policy", "c-policy", True, key="policy"),
    RunColumn("task", "Task", "c-task", True, key="task"),
    RunColumn("progress", "Progress", "c-progress", True, key="progress"),
    RunColumn("curve", "Reward curve", "c-spark", True),
    _make_stored_column("reward", "Reward", "reward", WORDS["step"], kind="num c-reward", usual=True),
    _make_stored_column("entropy", "Entropy", "entropy", WORDS["step"], kind="num c-entropy", usual=True),
    _make_stored_column("speed", "Tokens/s", "tokens_per_second", WORDS["step"], kind="num c-speed", usual=True),
    RunColumn("age", "Age", "num c-age", True, key="age"),
    RunColumn("who", "Who", "c-who", True, key="who"),
)
NUMBERS = (
    _make_stored_column("heldout", "Held-out reward", "heldout", WORDS["last"]),
    _make_figure_column("heldout_best", "highest"),
    _make_figure_column("accuracy", "accuracy"),
    _make_figure_column("reward_tail", "reward"),
    _make_figure_column("entropy_tail", "entropy"),
    _make_stored_column("loss", "Loss", "loss", WORDS["step"]),
    _make_count_column("step", "Steps"),
    _make_count_column("tokens", "Tokens"),
    _make_count_column("rollouts", "Rollouts"),
    RunColumn("seconds", "Time", "num", order=SECONDS, key="seconds", words=WORDS["wall"], write=_write_seconds),
)
FACTS = (
    RunColumn("trainer", "Trainer", order=F("trainer"), key="trainer", write=lambda known: known.run.trainer),
    RunColumn("base", "Base", order=BASE_NAME, key="base", reads_spec=True, write=lambda known: stack_of(known.run.spec).base),
    RunColumn(
        "methods", "Methods", order=METHOD_NAMES, key="methods", reads_spec=True, write=lambda known: ", ".join(stack_of(known.run.spec).methods)
    ),
    RunColumn("queue", "Queue", order=F("queue"), key="queue", write=lambda known: known.run.queue),
    RunColumn("project", "Project", order=F("project__name"), key="project", write=lambda known: known.run.project.name if known.run.project else ""),
    RunColumn("weights", "Reward weights", reads_spec=True, write=lambda known: write_weights(known.run)),
)
KNOWN = {column.name: column for column in (*USUAL, *NUMBERS, *FACTS)}


def write_weights(run: Run) -> str:
    return ", ".join(f"{name} {weight:g}" for name, weight in collect_reward_weights(run.spec).items())


def make_config_column(field: ConfigField) -> RunColumn:
    def write(known: Known) -> str:
        return format_config_value(known.config.get(field.name))

    name = CONFIG + field.name
    return RunColumn(name, field.label, order=field.expression, key=name, write=write, reads_spec=True)


def find_column(name: str) -> RunColumn | None:
    if not name.startswith(CONFIG):
        return KNOWN.get(name)
    field = read_config_field(name.removeprefix(CONFIG))
    return make_config_column(field) if field else None


def find_order(key: str) -> Any:
    """What runs are sorted by under that key of an address, beyond what the list has always sorted by; None where there is nothing."""
    column = find_column(key)
    return column.order if column and column.key else None


def list_columns(choice: ColumnChoice, fields: Iterable[ConfigField] = ()) -> list[RunColumn]:
    """Every column there is: of settings those in ``fields`` and those that are chosen."""
    chosen = (find_column(name) for name in (*choice.pinned, *choice.order, *sorted(choice.shown)) if name.startswith(CONFIG))
    config = {column.name: column for column in (*map(make_config_column, fields), *(column for column in chosen if column))}
    return [*KNOWN.values(), *config.values()]


def arrange_columns(choice: ColumnChoice) -> list[RunColumn]:
    """The columns that are seen, in their order; the run's name is always one."""
    seen = choice.arrange(list_columns(choice))
    return seen if any(column.name == FIXED for column in seen) else [KNOWN[FIXED], *seen]


def write_cells(columns: Sequence[RunColumn], runs: Sequence[Run]) -> dict[UUID, dict[str, str]]:
    """By run and column the text of the cells that the template does not draw: a fixed number of queries, however many runs."""
    written = [(column.name, column.write) for column in columns if column.write]
    figures = read_curve_figures([run.pk for run in runs], [column.figure for column in columns if column.figure]) if runs else {}
    reads_config = any(column.name.startswith(CONFIG) for column in columns)

    def know(run: Run) -> Known:
        found = {key: values[run.pk].value for key, values in figures.items() if run.pk in values}
        return Known(run, found, read_config_values(run.spec) if reads_config else {})

    return {run.pk: {name: write(known) for name, write in written} for run in runs for known in [know(run)]}
