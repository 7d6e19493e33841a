"""The audit log: who did what to which object from where."""

from django.urls import URLPattern, URLResolver, path

from lab.audit import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("audit/", views.audit, name="audit"),
    path("audit/<int:entry_id>/", views.entry, name="audit-entry"),
    path("audit/export/<slug:form>/", views.export, name="audit-export"),
]
