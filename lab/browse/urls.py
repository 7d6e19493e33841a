"""The browser over rollouts of one run, several, or the whole team."""

from django.urls import path

from lab.browse import actions, saved, views

urlpatterns = [
    path("rollouts/", views.rollouts, name="rollouts"),
    path("rollouts/histograms/", views.histograms, name="rollouts-histograms"),
    path("rollouts/runs/", views.run_choices, name="rollouts-runs"),
    path("rollouts/newest/", views.newest, name="rollouts-newest"),
    path("rollouts/preview/<int:rollout_id>/", views.preview, name="rollout-preview"),
    path("rollouts/columns/", views.choose_columns, name="rollouts-columns"),
    path("rollouts/tag/", actions.tag, name="rollouts-tag"),
    path("rollouts/tag/undo/", actions.undo_tag, name="rollouts-untag"),
    path("rollouts/export/<slug:form>/", actions.export, name="rollouts-export"),
    path("rollouts/views/", saved.save, name="view-save"),
    path("rollouts/views/restore/", saved.restore, name="view-restore"),
    path("rollouts/views/<int:key>/", saved.open_view, name="view-open"),
    path("rollouts/views/<int:key>/update/", saved.update, name="view-update"),
    path("rollouts/views/<int:key>/rename/", saved.rename, name="view-rename"),
    path("rollouts/views/<int:key>/delete/", saved.delete, name="view-delete"),
]
