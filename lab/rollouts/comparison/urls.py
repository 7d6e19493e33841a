"""Runs beside each other, and two of their rollouts."""

from django.urls import path

from lab.rollouts.comparison import rollout_views, views

urlpatterns = [
    path("compare/", views.show_run_comparison, name="compare"),
    path("compare/series/", views.compare_series, name="compare-series"),
    path("compare/rollouts/", rollout_views.compare_rollouts, name="compare-rollouts"),
    path("compare/prompts/", rollout_views.compare_prompts, name="compare-prompts"),
]
