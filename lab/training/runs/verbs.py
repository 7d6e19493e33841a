"""What people change about runs that are there: name, notes, tags, archive, and acts on several runs at once. All of it is audited and told to
open pages; the spec stays as it was launched. Status is changed by the verbs of ``Run`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import transaction
from django.utils import timezone

from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import Team
from lab.teams.audit.recording import record_audit_entry
from lab.training.runs import live
from lab.training.runs.launch import enqueue_run
from lab.training.runs.models import HEAVY, NAME_LENGTH, Run, RunQuerySet, Status
from lab.training.runs.resumption import find_resume_objection
from lab.training.runs.tags import MOST_TAGS, clean_tag, clean_tags, spell_as_team

G = TypeVar("G")
T = TypeVar("T")

NOTES_LENGTH = 10_000
MOST_AT_ONCE = 200  # runs in one act


@dataclass(frozen=True)
class BulkOutcome:
    """``changed``: the runs that are different now; ``left``: number of each other run → why it was left alone."""

    changed: list[Run] = field(default_factory=list)
    left: dict[int, str] = field(default_factory=dict)


def clean_run_name(text: str) -> str:
    """Raises InputRefusal."""
    name = " ".join(text.replace("\0", "\u2400").split())
    if not name:
        raise InputRefusal([Problem("name", "Enter a name.")])
    if len(name) > NAME_LENGTH:
        raise InputRefusal([Problem("name", f"The name has {len(name)} characters. Use at most {NAME_LENGTH}.")])
    return name


def clean_run_notes(text: str) -> str:
    """Raises InputRefusal."""
    notes = text.replace("\0", "\u2400").replace("\r\n", "\n").replace("\r", "\n").strip()
    if len(notes) > NOTES_LENGTH:
        raise InputRefusal([Problem("notes", f"The notes have {len(notes):,} characters. Use at most {NOTES_LENGTH:,}.")])
    return notes


def change_run_about(run: Run, *, name: str | None = None, notes: str | None = None, tags: Iterable[str] | None = None) -> bool:
    """Whether anything was different; None stays as it is, ``tags`` replace those there are.

    Raises InputRefusal naming everything that has to change; then nothing is changed.
    """
    problems: list[Problem] = []

    def clean(given: G | None, cleaner: Callable[[G], T]) -> T | None:
        try:
            return None if given is None else cleaner(given)
        except InputRefusal as refusal:
            problems.extend(refusal.problems)
            return None

    new_name, new_notes, new_tags = clean(name, clean_run_name), clean(notes, clean_run_notes), clean(tags, clean_tags)
    if problems:
        raise InputRefusal(problems)
    with transaction.atomic():
        renamed = new_name is not None and _change_run_text(run, "name", new_name, "run.rename")
        noted = new_notes is not None and _change_run_text(run, "notes", new_notes, "run.notes")
        tagged = new_tags is not None and _replace_run_tags(run, new_tags)
    return renamed or noted or tagged


def _change_run_text(run: Run, name: str, text: str, action: str) -> bool:
    row = Run.objects.same_row(run).select_for_update(of=("self",)).only("name", "notes").get()
    before = getattr(row, name)
    if before == text:
        return False
    Run.objects.same_row(run).update(**{name: text})
    setattr(run, name, text)
    # The log says how long notes are, not what they say: an entry stays for ever, and people take back what they wrote.
    details = {"changed": {"name": [before, text]}} if name == "name" else {"characters": [len(before), len(text)]}
    record_audit_entry(action, run, **details)
    _tell_after_commit([run] if name == "name" else [])
    return True


def _replace_run_tags(run: Run, tags: list[str]) -> bool:
    [row] = _lock_runs(run.team, [run.number])
    changed = _write_tags(row, spell_as_team(run.team, tags))
    run.tags = row.tags
    _tell_after_commit([row] if changed else [])
    return changed


def tag_runs(team: Team, numbers: Collection[int], word: str) -> BulkOutcome:
    """Adds one tag to each run, so that taking it from the changed ones undoes exactly this. Raises InputRefusal."""
    [spelled] = spell_as_team(team, [clean_tag(word)])

    def tag(run: Run) -> str:
        if spelled in run.tags:
            return "already tagged"
        if len(run.tags) >= MOST_TAGS:
            return f"already has {MOST_TAGS} tags"
        return "" if _write_tags(run, [*run.tags, spelled]) else "already tagged"

    return change_each_run(team, numbers, tag)


def untag_runs(team: Team, numbers: Collection[int], word: str) -> BulkOutcome:
    """Raises InputRefusal."""
    gone = clean_tag(word).casefold()

    def untag(run: Run) -> str:
        return "" if _write_tags(run, [tag for tag in run.tags if tag.casefold() != gone]) else "without this tag"

    return change_each_run(team, numbers, untag)


def archive_runs(team: Team, numbers: Collection[int]) -> BulkOutcome:
    """Takes runs that have ended out of the lists."""

    def archive(run: Run) -> str:
        objection = find_archive_objection(run)
        if not objection:
            run.archived_at = timezone.now()
            run.save(update_fields=["archived_at"])
            record_audit_entry("run.archive", run)
        return objection

    return change_each_run(team, numbers, archive)


def find_archive_objection(run: Run) -> str:
    """Why the run stays in the list; nothing when it may go."""
    if run.archived_at:
        return "already archived"
    return f"{run.status}, stop it first" if run.is_open else ""


def unarchive_runs(team: Team, numbers: Collection[int]) -> BulkOutcome:
    def unarchive(run: Run) -> str:
        if run.archived_at is None:
            return "not archived"
        run.archived_at = None
        run.save(update_fields=["archived_at"])
        record_audit_entry("run.unarchive", run)
        return ""

    return change_each_run(team, numbers, unarchive)


def stop_runs(team: Team, numbers: Collection[int]) -> BulkOutcome:
    """Asks each for stop-and-save. Each is a transaction of its own: a run that cannot be stopped holds no other up."""
    runs = find_chosen_runs(team, numbers)
    outcome = BulkOutcome()
    for run in runs:
        if run.request_stop():
            outcome.changed.append(run)
            live.publish_state(run)
        else:
            outcome.left[run.number] = "already stopping" if run.status == Status.STOPPING else f"already {run.status}"
    _add_missing_runs(outcome, numbers, runs)
    return outcome


def resume_runs(team: Team, numbers: Collection[int]) -> BulkOutcome:
    """Queues each again, from its last checkpoint. Each is a transaction of its own, as with stopping."""
    runs = find_chosen_runs(team, numbers)
    outcome = BulkOutcome()
    for run in runs:
        if run.resume():
            outcome.changed.append(run)
            enqueue_run(run)
            live.publish_state(run)
        else:
            outcome.left[run.number] = _explain_not_resumed(run)
    _add_missing_runs(outcome, numbers, runs)
    return outcome


def _explain_not_resumed(run: Run) -> str:
    if run.outside:
        return "trained by a script elsewhere, which resumes it"
    if run.status == Status.FINISHED:
        return "already finished, clone it instead"
    return f"already {run.status}" if run.is_open else find_resume_objection(run).rstrip(".")


def act_on_runs(team: Team, act: str, numbers: Collection[int], tag: str) -> BulkOutcome:
    """``act``: a key of PLAIN_ACTS or TAG_ACTS; ``tag`` is for the latter. Raises InputRefusal and Refusal."""
    return PLAIN_ACTS[act](team, numbers) if act in PLAIN_ACTS else TAG_ACTS[act](team, numbers, tag)


PLAIN_ACTS: dict[str, Callable[[Team, Collection[int]], BulkOutcome]] = {
    "stop": stop_runs,
    "resume": resume_runs,
    "archive": archive_runs,
    "unarchive": unarchive_runs,
}
TAG_ACTS: dict[str, Callable[[Team, Collection[int], str], BulkOutcome]] = {"tag": tag_runs, "untag": untag_runs}


def find_chosen_runs(team: Team, numbers: Collection[int], *, binned: bool = False) -> list[Run]:
    """The team's runs of these numbers. Raises Refusal: 404 when it has none of them, 422 when they are too many."""
    if len(set(numbers)) > MOST_AT_ONCE:
        raise Refusal(f"{len(set(numbers))} runs are too many at once.", f"Select at most {MOST_AT_ONCE}.", "runs", status=422)
    chosen = _select_runs(team, binned).filter(number__in=set(numbers))
    runs = list(chosen.defer(*HEAVY).order_by("number"))
    if not runs:
        raise Refusal("None of these runs is in the bin." if binned else "Your team has none of these runs.", status=404)
    return runs


def _add_missing_runs(outcome: BulkOutcome, numbers: Collection[int], runs: list[Run]) -> None:
    outcome.left.update(dict.fromkeys(sorted(set(numbers) - {run.number for run in runs}), "not found"))


def change_each_run(team: Team, numbers: Collection[int], change: Callable[[Run], str], *, binned: bool = False) -> BulkOutcome:
    """``change`` says why it left a run alone. All runs are held while it decides, so that what it sees of one stays true.

    ``binned``: the runs are in the bin; otherwise none of them is.
    """
    runs = find_chosen_runs(team, numbers, binned=binned)
    outcome = BulkOutcome()
    with transaction.atomic():
        for run in _lock_runs(team, [run.number for run in runs], binned=binned):
            if why := change(run):
                outcome.left[run.number] = why
            else:
                outcome.changed.append(run)
        _tell_after_commit(outcome.changed)
    _add_missing_runs(outcome, numbers, runs)
    return outcome


def _select_runs(team: Team, binned: bool) -> RunQuerySet:
    return Run.objects.in_bin(team) if binned else Run.objects.of(team)


def _lock_runs(team: Team, numbers: Collection[int], *, binned: bool = False) -> list[Run]:
    """In the order of their numbers: two people who act on the same runs wait for each other and never deadlock."""
    runs: Any = _select_runs(team, binned).filter(number__in=numbers).select_for_update(of=("self",)).select_related("team")
    return list(runs.defer(*HEAVY).order_by("number"))


def _write_tags(run: Run, tags: list[str]) -> bool:
    added, removed = [tag for tag in tags if tag not in run.tags], [tag for tag in run.tags if tag not in tags]
    if not added and not removed:
        return False
    run.tags = tags
    run.save(update_fields=["tags"])
    record_audit_entry("run.tag", run, added=added, removed=removed)
    return True


def _tell_after_commit(runs: Iterable[Run]) -> None:
    for run in runs:
        transaction.on_commit(lambda run=run: live.publish_labels(run), robust=True)  # type: ignore[misc]
