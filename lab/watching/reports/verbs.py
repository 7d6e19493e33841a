"""What can be done with reports, whoever asks: written, saved as versions, put away and taken back, deleted. All of it is audited."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from lab.lib.markdown import clean_markdown_text
from lab.lib.refusals import InputRefusal, Problem, Refusal
from lab.teams.accounts.models import Project, Team, User
from lab.teams.audit.recording import record_audit_entry
from lab.watching.reports.models import MESSAGE_LENGTH, TEXT_LENGTH, TITLE_LENGTH, Report, ReportVersion


class ReportConflict(Refusal):
    """Somebody else saved ``newest`` since the version that was edited; ``text`` is what was to be saved."""

    def __init__(self, newest: ReportVersion, text: str) -> None:
        who = f" by {newest.author}" if newest.author else ""
        super().__init__(
            f"Version {newest.number} was saved{who} while you were editing.",
            f"Merge your text with it, then save with base {newest.number}.",
            field="base",
            code="edited",
        )
        self.newest, self.text = newest, text


def clean_line(text: str) -> str:
    """A title or a message: one line."""
    return " ".join(clean_markdown_text(text).split())


def check_report_values(title: str, text: str, message: str = "") -> None:
    """Raises InputRefusal naming every input that has to change."""
    problems = []
    if not title:
        problems.append(Problem("title", "Enter a title."))
    for name, value, most in (("title", title, TITLE_LENGTH), ("text", text, TEXT_LENGTH), ("message", message, MESSAGE_LENGTH)):
        if len(value) > most:
            problems.append(Problem(name, f"This has {len(value):,} characters. Use at most {most:,}."))
    if problems:
        raise InputRefusal(problems)


def create_report(team: Team, user: User | None, title: str, text: str, project: Project | None = None) -> Report:
    """With its first version. Raises InputRefusal."""
    title, text = clean_line(title), clean_markdown_text(text)
    check_report_values(title, text)
    with transaction.atomic():
        report = Report.objects.create(team=team, author=user, title=title, project=project)
        record_audit_entry("report.create", report)
        add_version(report, user, text, "")
    return report


def add_version(report: Report, user: User | None, text: str, message: str) -> ReportVersion:
    """The caller's transaction holds the report's row locked, or has just made it."""
    report.number += 1
    version = ReportVersion.objects.create(report=report, number=report.number, text=text, message=message, author=user)
    Report.objects.same_row(report).update(number=report.number, updated_at=Now())
    return version


def read_newest_version(report: Report) -> ReportVersion:
    return report.versions.select_related("author").latest("number")


def save_version(report: Report, user: User | None, text: str, base: int, message: str = "") -> tuple[ReportVersion, bool]:
    """The version that has the text, and whether it is a new one: nothing is added where the text is the newest version's.

    ``base`` is the number of the version that was edited. Raises ReportConflict when it is not the newest, and InputRefusal.
    """
    text, message = clean_markdown_text(text), clean_line(message)
    check_report_values(report.title, text, message)
    with transaction.atomic():
        locked = Report.objects.same_row(report).select_for_update().get()
        newest = read_newest_version(locked)
        if newest.text == text:
            return newest, False
        if newest.number != base:
            raise ReportConflict(newest, text)
        version = add_version(locked, user, text, message)
        record_audit_entry("report.save", locked, number=version.number, message=message)
    report.number = version.number
    return version, True


def append_block(report: Report, user: User | None, block: str, message: str) -> ReportVersion:
    """The block at the end of the newest version, whoever saved that meanwhile. Raises InputRefusal."""
    with transaction.atomic():
        locked = Report.objects.same_row(report).select_for_update().get()
        newest = read_newest_version(locked)
        version, _ = save_version(locked, user, f"{newest.text.rstrip()}\n\n{block}\n".lstrip("\n"), newest.number, message)
    return version


def restore_version(report: Report, user: User | None, old: ReportVersion) -> tuple[ReportVersion, bool]:
    """The text of an old version as a new one."""
    with transaction.atomic():
        locked = Report.objects.same_row(report).select_for_update().get()
        return save_version(locked, user, old.text, locked.number, f"Restored version {old.number}")


def describe_report(report: Report, title: str, project: Project | None) -> bool:
    """Another title or project; whether anything was changed. Raises InputRefusal."""
    title = clean_line(title)
    check_report_values(title, "")
    before: dict[str, Any] = {"title": report.title, "project": report.project.name if report.project else None}
    after: dict[str, Any] = {"title": title, "project": project.name if project else None}
    changed = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
    if changed or report.project_id != (project.pk if project else None):
        with transaction.atomic():
            Report.objects.same_row(report).update(title=title, project=project)
            report.title, report.project = title, project
            record_audit_entry("report.change", report, changed=changed)
    return bool(changed)


def set_report_archived(report: Report, *, away: bool) -> bool:
    """Into the archive, or back; whether it was elsewhere. Doing it twice is doing it once."""
    with transaction.atomic():
        changed = Report.objects.same_row(report).filter(archived_at__isnull=away).update(archived_at=timezone.now() if away else None)
        if changed:
            record_audit_entry("report.archive" if away else "report.unarchive", report)
    return bool(changed)


def delete_report(report: Report) -> None:
    """With all its versions, for good. Raises Refusal for one that is not archived."""
    with transaction.atomic():
        locked = Report.objects.same_row(report).select_for_update().first()
        if locked is None:
            return
        if locked.archived_at is None:
            raise Refusal("Only archived reports can be deleted.", "Archive it first.")
        record_audit_entry("report.delete", locked, versions=locked.number)
        locked.delete()
