"""Addresses of branches."""

from django.urls import path

from lab.models.branches import lists, views

urlpatterns = [
    path("rollouts/<id:rollout_id>/branches/", lists.list_rollout_branches, name="rollout-branches"),
    path("rollouts/<id:rollout_id>/branch/", views.start_branch, name="branch-new"),
    path("rollouts/<id:rollout_id>/alternatives/", views.ask_alternatives, name="alternatives-ask"),
    path("alternatives/<uuid:alternatives_id>/state.json", views.show_alternatives_state, name="alternatives-state"),
    path("runs/<uuid:run_id>/groups/<str:phase>/<int:step>/<int:group>/branches/", lists.list_group_branches, name="group-branches"),
    path("branches/<uuid:branch_id>/", views.show_branch, name="branch"),
    path("branches/<uuid:branch_id>/state.json", views.show_branch_state, name="branch-state"),
    path("branches/<uuid:branch_id>/stop/", views.stop_branch_here, name="branch-stop"),
    path("branches/<uuid:branch_id>/delete/", views.delete_branch_here, name="branch-delete"),
    path("branches/<uuid:branch_id>/queue/", views.queue_branch_pairs, name="branch-queue"),
]
