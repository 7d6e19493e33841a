"""Reports: the list, one report, its editor, versions and file, and what is added from other pages."""

from django.urls import path

from lab.watching.reports import acts, inserts, pages

urlpatterns = [
    path("reports/", pages.list_reports, name="reports"),
    path("reports/new/", acts.write_report, name="report-new"),
    path("reports/preview/", acts.preview_report, name="report-preview"),
    path("reports/choices/", inserts.list_report_choices, name="report-choices"),
    path("reports/add/", inserts.add_block, name="report-add"),
    path("reports/<id:report_id>/", pages.show_report, name="report"),
    path("reports/<id:report_id>/edit/", acts.edit_report, name="report-edit"),
    path("reports/<id:report_id>/versions/", pages.list_versions, name="report-versions"),
    path("reports/<id:report_id>/export/", pages.export_report, name="report-export"),
    path("reports/<id:report_id>/restore/", acts.restore_report_version, name="report-restore"),
    path("reports/<id:report_id>/archive/", acts.archive_report, name="report-archive"),
    path("reports/<id:report_id>/unarchive/", acts.unarchive_report, name="report-unarchive"),
    path("reports/<id:report_id>/delete/", acts.delete_archived_report, name="report-delete"),
]
