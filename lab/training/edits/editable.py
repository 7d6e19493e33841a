"""What of a run can be edited now: its settings as they hold, the edits that wait, and why something cannot be changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab.training.catalog.catalog import CatalogError, load_catalog
from lab.training.edits.models import EditState, RunEdit
from lab.training.runs.models import Run, Status
from lab.training.runs.stack import load_method_entries, stack_of
from trainers.contract.edits import MIX, REWARD, EditableSettings, TaskOffer, Values, list_editable_settings
from trainers.contract.spec import RunSpec, SpecError, parse_spec

EDITED = (EditState.APPLIED, EditState.PENDING)  # whose reported settings hold
TITLES = {
    "training.learning_rate": "learning rate",
    "training.beta": "KL coefficient (beta)",
    "training.temperature": "temperature",
    "human.weight": "weight of the human reward",
}


@dataclass(frozen=True)
class EditSheet:
    """``current``: what the run trains with; ``expected``: once the edits that wait hold too. ``objection``: why it cannot be edited, or nothing."""

    run: Run
    spec: RunSpec | None
    settings: EditableSettings
    current: Values
    expected: Values
    objection: str = ""


def build_edit_sheet(run: Run) -> EditSheet:
    edits = list(run.edits.all())
    try:
        spec = parse_spec(run.spec)
        settings = list_editable_settings(spec, find_task_offer(spec), find_method_hooks(run))
    except (SpecError, CatalogError):
        nothing = EditableSettings({})
        return EditSheet(run, None, nothing, {}, {}, find_edit_objection(run) or "It was launched by a version whose settings cannot be edited.")
    current = settings.launched | collect_held_changes(edits)
    waiting = {name: value for edit in edits if edit.state == EditState.PENDING and not edit.withdrawn_at for name, value in edit.changes.items()}
    return EditSheet(run, spec, settings, current, current | waiting, find_edit_objection(run))


def find_task_offer(spec: RunSpec) -> TaskOffer:
    """A launched spec holds the weights of the team's own tasks. Raises CatalogError."""
    if spec.task.file is not None:
        return TaskOffer(dict(spec.task.rewards), [spec.task.difficulty])
    entry = load_catalog().task(spec.task.name)
    return TaskOffer({reward["name"]: float(reward["weight"]) for reward in entry["rewards"]}, list(entry["difficulties"]))


def find_method_hooks(run: Run) -> dict[str, list[str]]:
    return {name: entry["hooks"] for name, entry in load_method_entries(stack_of(run.spec).names).items()}


def collect_held_changes(edits: Iterable[RunEdit]) -> Values:
    """Setting -> the value that the newest reported edit gave it."""
    held = [(step, edit.pk, name, edit.changes[name]) for edit in edits if edit.state in EDITED for name, step in edit.steps.items()]
    return {name: value for _, _, name, value in sorted(held)}


def find_edit_objection(run: Run) -> str:
    """Why nothing of the run can be edited now, for a person; nothing when it can."""
    if run.outside:
        return "It is trained by an external script, whose settings the lab cannot change."
    if run.status not in (Status.STARTING, Status.RUNNING):
        return f"It is {run.status}. Only a run that is training can be edited."
    if (trial := getattr(run, "trial", None)) is not None:
        return f"It is {trial} of the sweep “{trial.sweep}”: an edit would make its score incomparable. Clone the run and edit the clone."
    if (member := getattr(run, "member", None)) is not None:
        whole = f"the {member.ablation.noun} “{member.ablation}”"
        return f"It is part of {whole}: an edit would make its results incomparable. Clone the run and edit the clone."
    return ""


def title_of_setting(name: str) -> str:
    """As people say it."""
    if name.startswith(REWARD):
        return f"reward weight {name.removeprefix(REWARD)}"
    if name.startswith(MIX):
        return f"prompt mix {name.removeprefix(MIX)}"
    return TITLES.get(name, name)
