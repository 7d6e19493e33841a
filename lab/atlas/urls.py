"""Where in its answers, and when, the policy of a run was undecided."""

from django.urls import path

from lab.atlas import views

urlpatterns = [
    path("runs/<uuid:run_id>/atlas/", views.run_atlas, name="run-atlas"),
]
