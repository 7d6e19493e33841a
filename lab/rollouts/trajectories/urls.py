"""Rollouts of a run and the tokens of one rollout."""

from django.urls import path

from lab.rollouts.trajectories import views

urlpatterns = [
    path("runs/<uuid:run_id>/rollouts/", views.show_rollout_feed, name="run-rollouts"),
    path("runs/<uuid:run_id>/steps.json", views.run_steps, name="run-steps"),
    path("runs/<uuid:run_id>/tokens.json", views.run_tokens, name="run-tokens"),
    path("rollouts/<id:rollout_id>/tokens/", views.show_rollout_tokens, name="rollout-tokens"),
]
