"""A report as a download, recorded in the audit log."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils import timezone

from lab.teams.audit.recording import record_audit_entry
from lab.watching.reports.export import name_report_file, render_report_file
from lab.watching.reports.models import ReportVersion

FORMATS = {"html": ("html", "text/html; charset=utf-8"), "markdown": ("md", "text/markdown; charset=utf-8")}


def build_export_answer(version: ReportVersion, form: str) -> HttpResponse:
    """``form`` is one of FORMATS."""
    ending, kind = FORMATS[form]
    body = render_report_file(version, timezone.now()) if form == "html" else version.text
    record_audit_entry("report.export", version.report, number=version.number, format=form)
    headers = {
        "Content-Disposition": f'attachment; filename="{name_report_file(version, ending)}"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return HttpResponse(body, content_type=kind, headers=headers)
