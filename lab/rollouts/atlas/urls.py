"""Where in its answers, and when, the policy of a run was undecided."""

from django.urls import path

from lab.rollouts.atlas import views

urlpatterns = [
    path("runs/<uuid:run_id>/atlas/", views.run_atlas, name="run-atlas"),
    path("runs/<uuid:run_id>/atlas/grid.json", views.atlas_grid, name="atlas-grid"),
    path("runs/<uuid:run_id>/atlas/values.json", views.atlas_values, name="atlas-values"),
    path("runs/<uuid:run_id>/atlas/tokens/", views.atlas_tokens, name="atlas-tokens"),
]
