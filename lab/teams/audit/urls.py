"""The audit log: who did what to which object from where."""

from django.urls import URLPattern, URLResolver, path

from lab.teams.audit import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("audit/", views.show_audit_log, name="audit"),
    path("audit/<id:entry_id>/", views.show_audit_entry, name="audit-entry"),
    path("audit/export/<slug:form>/", views.export_audit_log, name="audit-export"),
]
