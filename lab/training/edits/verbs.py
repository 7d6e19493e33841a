"""Asking for an edit of a running run, and taking one back before it holds. Both are audited and told to open pages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace

from django.db import transaction
from django.utils import timezone

from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import User
from lab.teams.audit.recording import record_audit_entry
from lab.training.edits.editable import build_edit_sheet
from lab.training.edits.models import EditState, RunEdit
from lab.training.edits.wording import format_edit_value
from lab.training.runs import live
from lab.training.runs.models import Run
from lab.training.runs.problem_words import DEFAULT, format_problem_sentence
from trainers.contract.edits import KEY, find_edit_problems
from trainers.contract.spec import Problem as SpecProblem

REASON_LENGTH = 500
MOST_EDITS = 200  # of one run


def request_run_edit(run: Run, author: User | None, changes: Mapping[str, float], reason: str, key: str = "") -> RunEdit:
    """The edit, which the trainer applies at its next boundary; the same one for a ``key`` that was sent before.

    Settings that keep their value are left out. Raises InputRefusal naming every input that has to change, and Refusal when the run cannot be edited.
    """
    if key and not re.fullmatch(KEY, key):  # the trainer knows the edit by it, and reads no other
        raise Refusal("The form is out of date.", "Open it again.", status=422)
    with transaction.atomic():
        held = Run.objects.same_row(run).select_for_update(of=("self",)).get()
        if key and (known := RunEdit.objects.filter(run=held, key=key).first()):
            return known
        sheet = build_edit_sheet(held)
        if sheet.objection or sheet.spec is None:
            raise Refusal(sheet.objection)
        if held.edits.count() >= MOST_EDITS:
            raise Refusal(f"The run has been edited {MOST_EDITS} times.", "Clone it instead.")
        new = {name: value for name, value in changes.items() if value != sheet.expected.get(name)}
        problems = [Problem(one.field, word_edit_problem(one)) for one in find_edit_problems(sheet.spec, sheet.settings, sheet.expected, new)]
        if not new:
            problems = [Problem("changes", "Nothing would change: these are the current values.")]
        text = " ".join(reason.replace("\0", "\u2400").split())
        if not text or len(text) > REASON_LENGTH:
            long = f"The reason has {len(text)} characters. Use at most {REASON_LENGTH}."
            problems.append(Problem("reason", long if text else "Enter a reason."))
        if problems:
            raise InputRefusal(problems)
        before = {name: sheet.expected[name] for name in new}
        edit = RunEdit.objects.create(run=held, key=key or uuid.uuid4().hex, author=author, reason=text, changes=new, before=before)
        record_audit_entry("run.edit", held, reason=text, changed=describe_changes(edit))
        transaction.on_commit(lambda: live.publish_edits(held), robust=True)
    return edit


def word_edit_problem(problem: SpecProblem) -> str:
    """A launch's default says nothing about what a running run should get."""
    return format_problem_sentence(replace(problem, fix="") if problem.fix.startswith(DEFAULT) else problem)


def describe_changes(edit: RunEdit) -> dict[str, list[str]]:
    """Setting -> what it was and is to be, as the audit log shows changes."""
    return {name: [format_edit_value(edit.before.get(name)), format_edit_value(value)] for name, value in edit.changes.items()}


def withdraw_run_edit(edit: RunEdit) -> RunEdit:
    """Takes back an edit that does not hold yet. One the trainer may have read already is withdrawn once the trainer says so. Raises Refusal."""
    with transaction.atomic():
        held = RunEdit.objects.same_row(edit).select_for_update(of=("self",)).select_related("run__team").get()
        if not held.may_be_withdrawn:
            step = held.first_step
            raise Refusal(f"It holds since step {step}." if step is not None else f"It is {held.get_state_display()} already.")
        held.withdrawn_at = timezone.now()
        if held.sent_at is None or not held.run.is_active:
            held.state = EditState.WITHDRAWN
        held.save(update_fields=["withdrawn_at", "state"])
        record_audit_entry("run.edit.withdraw", held.run, changed=describe_changes(held))
        transaction.on_commit(lambda: live.publish_edits(held.run), robust=True)
    return held
