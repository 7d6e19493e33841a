"""Runs: the list, the launch form, one run's pages and its actions."""

from django.urls import path

from lab.runs.views import actions, launching, listing, methods, page, saved, workers

urlpatterns = [
    path("", listing.home, name="home"),
    path("runs/", listing.index, name="runs"),
    path("workers/", workers.index, name="workers"),
    # methods
    path("methods/", methods.index, name="methods"),
    path("methods/<str:name>/", methods.detail, name="method"),
    # launch
    path("launch/", launching.recipes, name="launch"),
    path("demo/", launching.demo, name="launch-demo"),
    path("preflight/", launching.preflight, name="launch-preflight"),
    path("launch/<slug:recipe>/", launching.form, name="launch-recipe"),
    path("compose/", launching.compose, name="launch-compose"),
    # recipes the team saved
    path("launch/<slug:recipe>/save/", saved.save, name="recipe-save"),
    path("saved/<int:key>/", saved.detail, name="recipe-saved"),
    path("saved/<int:key>/delete/", saved.delete, name="recipe-delete"),
    path("saved/<int:key>/restore/", saved.restore, name="recipe-restore"),
    # one run
    path("runs/<uuid:run_id>/", page.overview, name="run"),
    path("runs/<uuid:run_id>/logs/", page.logs, name="run-logs"),
    path("runs/<uuid:run_id>/config/", page.config, name="run-config"),
    path("runs/<uuid:run_id>/metrics.json", page.metrics, name="run-metrics"),
    path("runs/<uuid:run_id>/metrics.csv", page.metrics_csv, name="run-metrics-csv"),
    path("runs/<uuid:run_id>/stop/", actions.stop, name="run-stop"),
    path("runs/<uuid:run_id>/kill/", actions.kill, name="run-kill"),
    path("runs/<uuid:run_id>/resume/", actions.resume, name="run-resume"),
]
