"""A run without one of its edits: the same spec, from a copy of the newest checkpoint before the edit, with every earlier edit at its old step.

The new run's folder begins with what the trainer needs to go on exactly (weights, optimizer, random numbers, place in the data), so both runs train
the same steps up to the edit. Hard links where the file system has them: a checkpoint is never written to again.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from lab.lib.folders import link_or_copy, remove_folder
from lab.lib.json_lines import append_json_lines
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry
from lab.training.edits.delivery import list_applied_lines
from lab.training.edits.editable import EDITED
from lab.training.edits.models import EditState, RunEdit, RunFork
from lab.training.runs import references
from lab.training.runs.launch import launch_run
from lab.training.runs.models import NAME_LENGTH, Run
from lab.training.runs.reward_weights import EDITED_WEIGHTS
from trainers.contract.edits import APPLIED, pick_reward_weights

CHECKPOINTS, NAME = "checkpoints", "checkpoint-"
WHOLE = "counters.json"  # the last file of a checkpoint that the trainer looks for
PAIRS = "pairs.jsonl"  # what DPO without a dataset sampled before its first step
WITHOUT = " without edit"


@dataclass(frozen=True)
class ForkPlan:
    """``from_step``: of the checkpoint, 0 for none; ``until_step``: the last step before the edit."""

    edit: RunEdit
    from_step: int
    until_step: int

    @property
    def repeated(self) -> int:
        """Steps that are trained once more."""
        return self.until_step - self.from_step

    @property
    def words(self) -> str:
        """What will be done, for who is asked."""
        if self.from_step:
            start = f"The new run continues from checkpoint {self.from_step} with its optimizer state, random numbers and place in the data."
        else:
            start = "No earlier checkpoint is on disk, so the new run starts from the beginning."
        if not self.repeated:
            return f"{start} No step is trained again."
        steps = f"step {self.until_step} is" if self.repeated == 1 else f"steps {self.from_step + 1} to {self.until_step} are"
        return f"{start} The {steps} trained again; earlier edits apply at the steps they applied at."


def plan_fork(edit: RunEdit) -> ForkPlan | None:
    """None for an edit that never held."""
    first = edit.first_step
    if first is None:
        return None
    stored = edit.run.checkpoints.filter(final=False).exclude(stored_at=None).values_list("step", flat=True)
    return ForkPlan(edit, max((step for step in [*list_checkpoint_steps(edit.run.folder), *stored] if step < first), default=0), first - 1)


def list_checkpoint_steps(folder: Path) -> list[int]:
    """The steps whose checkpoints are whole on the disk."""
    names = [path.name.removeprefix(NAME) for path in (folder / CHECKPOINTS).glob(f"{NAME}*") if (path / WHOLE).is_file()]
    return sorted(int(name) for name in names if name.isdecimal())


def fork_without_edit(edit: RunEdit, user: User | None) -> Run:
    """The queued run. Raises Refusal when the edit never held or its checkpoint has gone meanwhile, and SpecError like any launch."""
    plan, source = plan_fork(edit), edit.run
    if plan is None:
        raise Refusal("This edit was not applied, so there is nothing to leave out.")
    spec = references.restore_reference_names(source.team, source.spec)
    name = f"{source.name[: NAME_LENGTH - len(WITHOUT)]}{WITHOUT}"
    with transaction.atomic():
        run = launch_run(source.team, user, spec, name, parent=source.parent, cloned_from=source)
        try:
            copy_start(source.folder, plan.from_step, run.folder)
            write_earlier_edits(run, list_earlier_edits(edit))
            RunFork.objects.create(run=run, edit=edit, from_step=plan.from_step, until_step=plan.until_step)
            record_audit_entry("run.fork", run, without=f"edit of #{source.number} from step {edit.first_step}", from_step=plan.from_step)
        except OSError as error:
            remove_folder(run.folder.parent, run.folder.name)
            raise Refusal(f"The checkpoint at step {plan.from_step} could not be copied: {error.strerror}.", "Try again.") from None
    return run


def list_earlier_edits(edit: RunEdit) -> list[RunEdit]:
    """Those that held before it, in the order they began to."""
    edits = [one for one in edit.run.edits.select_related("author") if one.state in EDITED and one.steps]
    place = (edit.first_step or 0, edit.pk)
    return sorted((one for one in edits if (one.first_step or 0, one.pk) < place), key=lambda one: (one.first_step or 0, one.pk))


def copy_start(source: Path, step: int, target: Path) -> None:
    """What this machine has of it; a checkpoint that only the store has is fetched by the worker that trains. Raises OSError."""
    target.mkdir(parents=True, exist_ok=True)
    name = f"{NAME}{step}"
    if step and (source / CHECKPOINTS / name).is_dir():
        shutil.copytree(source / CHECKPOINTS / name, target / CHECKPOINTS / name, copy_function=link_or_copy)
    if (source / PAIRS).is_file():
        shutil.copy(source / PAIRS, target / PAIRS)


def write_earlier_edits(run: Run, earlier: Sequence[RunEdit]) -> None:
    """As if the new run had been edited so: in its database rows, and in the record its trainer goes by."""
    lines = list_applied_lines(earlier)
    for edit in earlier:
        held = {name: edit.changes[name] for name in edit.steps}
        about = {"key": edit.key, "author": edit.author, "reason": edit.reason, "changes": held, "before": edit.before, "steps": edit.steps}
        RunEdit.objects.create(run=run, state=EditState.APPLIED, sent_at=edit.sent_at, **about)
    weights = {name: value for line in lines for name, value in pick_reward_weights(line.changes).items()}
    Run.objects.same_row(run).update(latest={EDITED_WEIGHTS: weights} if weights else {})
    if lines:
        append_json_lines(run.folder / APPLIED, [line.model_dump() for line in lines])
