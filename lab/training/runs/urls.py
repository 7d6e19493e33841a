"""Runs: the list, the launch form, one run's pages and its actions."""

from django.urls import path

from lab.training.runs.views import (
    about,
    actions,
    bulk,
    environment,
    launch_form,
    listing,
    methods,
    page,
    palette,
    saved_recipes,
    systems,
    workers,
    worlds,
)

urlpatterns = [
    path("", listing.show_home, name="home"),
    path("palette/", palette.find_by_words, name="palette"),
    path("runs/", listing.list_runs, name="runs"),
    path("runs/columns/", listing.choose_run_columns, name="runs-columns"),
    path("runs/act/", bulk.act_on_runs, name="runs-act"),
    path("workers/", workers.list_workers, name="workers"),
    path("workers/drain/", workers.change_worker_drain, name="worker-drain"),
    # methods
    path("methods/", methods.list_methods, name="methods"),
    path("methods/<str:name>/", methods.show_method, name="method"),
    path("systems/", systems.list_systems, name="systems"),
    path("worlds/", worlds.list_worlds, name="worlds"),
    path("worlds/<slug:world>/", worlds.show_world, name="world"),
    # launch
    path("launch/", launch_form.list_launch_recipes, name="launch"),
    path("demo/", launch_form.launch_demo, name="launch-demo"),
    path("preflight/", launch_form.show_preflight_panel, name="launch-preflight"),
    path("launch/<slug:recipe>/", launch_form.show_launch_form, name="launch-recipe"),
    path("compose/", launch_form.compose_method_section, name="launch-compose"),
    # recipes the team saved
    path("launch/<slug:recipe>/save/", saved_recipes.save_recipe_version, name="recipe-save"),
    path("saved/<id:key>/", saved_recipes.show_saved_recipe, name="recipe-saved"),
    path("saved/<id:key>/delete/", saved_recipes.delete_saved_recipe, name="recipe-delete"),
    path("saved/<id:key>/restore/", saved_recipes.restore_saved_recipe, name="recipe-restore"),
    # one run
    path("runs/<uuid:run_id>/", page.show_run_overview, name="run"),
    path("runs/<uuid:run_id>/logs/", page.show_run_logs, name="run-logs"),
    path("runs/<uuid:run_id>/config/", page.show_run_config, name="run-config"),
    path("runs/<uuid:run_id>/attempts/<int:attempt>/environment.json", environment.download_environment, name="run-environment"),
    path("runs/<uuid:run_id>/attempts/<int:attempt>/requirements.txt", environment.download_requirements, name="run-requirements"),
    path("runs/<uuid:run_id>/about/", about.edit_run_about, name="run-about"),
    path("runs/<uuid:run_id>/archive/", about.archive_run, name="run-archive"),
    path("runs/<uuid:run_id>/unarchive/", about.unarchive_run, name="run-unarchive"),
    path("runs/<uuid:run_id>/metrics.json", page.serve_run_metrics, name="run-metrics"),
    path("runs/<uuid:run_id>/metrics.csv", page.metrics_csv, name="run-metrics-csv"),
    path("runs/<uuid:run_id>/stop/", actions.stop_run, name="run-stop"),
    path("runs/<uuid:run_id>/kill/", actions.kill_run, name="run-kill"),
    path("runs/<uuid:run_id>/resume/", actions.resume_run, name="run-resume"),
]
