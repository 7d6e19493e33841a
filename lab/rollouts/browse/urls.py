"""The browser over rollouts of one run, several, or the whole team."""

from django.urls import path

from lab.rollouts.browse import actions, saved, views

urlpatterns = [
    path("rollouts/", views.show_rollout_browser, name="rollouts"),
    path("rollouts/histograms/", views.show_rollout_histograms, name="rollouts-histograms"),
    path("rollouts/runs/", views.run_choices, name="rollouts-runs"),
    path("rollouts/tags/", views.list_tag_names, name="rollouts-tags"),
    path("rollouts/newest/", views.show_newest_rollout_id, name="rollouts-newest"),
    path("rollouts/ends/", views.list_completion_ends, name="rollouts-ends"),
    path("rollouts/preview/<id:rollout_id>/", views.preview_rollout, name="rollout-preview"),
    path("rollouts/columns/", views.choose_columns, name="rollouts-columns"),
    path("rollouts/tag/", actions.tag_selection, name="rollouts-tag"),
    path("rollouts/tag/undo/", actions.undo_tag, name="rollouts-untag"),
    path("rollouts/export/<slug:form>/", actions.export_rollouts, name="rollouts-export"),
    path("rollouts/views/", saved.create_saved_view, name="view-save"),
    path("rollouts/views/restore/", saved.restore_saved_view, name="view-restore"),
    path("rollouts/views/<id:key>/", saved.open_view, name="view-open"),
    path("rollouts/views/<id:key>/update/", saved.update_saved_view, name="view-update"),
    path("rollouts/views/<id:key>/rename/", saved.rename_saved_view, name="view-rename"),
    path("rollouts/views/<id:key>/delete/", saved.delete_saved_view, name="view-delete"),
]
