"""Edits of running runs."""

from django.urls import path

from lab.training.edits import views

urlpatterns = [
    path("runs/<uuid:run_id>/edits/", views.show_run_edits, name="run-edits"),
    path("runs/<uuid:run_id>/edits/new/", views.edit_run, name="run-edit"),
    path("edits/<id:edit_id>/withdraw/", views.withdraw_edit, name="edit-withdraw"),
    path("edits/<id:edit_id>/fork/", views.fork_edit, name="edit-fork"),
]
