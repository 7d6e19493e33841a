"""Ablations and grids: the list, a new one, one with its figures, and what can be done with it."""

from django.urls import path

from lab.training.ablations import grid_views, views

urlpatterns = [
    path("", views.list_ablations, name="ablations"),
    path("new/", views.launch_ablation, name="ablation-new"),
    path("grid/new/", grid_views.launch_grid, name="grid-new"),
    path("<uuid:ablation_id>/", views.show_ablation, name="ablation"),
    path("<uuid:ablation_id>/figures.csv", views.export_ablation, name="ablation-csv"),
    path("<uuid:ablation_id>/resume/", views.resume_ablation, name="ablation-resume"),
    path("<uuid:ablation_id>/more/", views.add_ablation_seeds, name="ablation-more"),
    path("<uuid:ablation_id>/stop/", views.stop_ablation, name="ablation-stop"),
    path("<uuid:ablation_id>/delete/", views.delete_ablation, name="ablation-delete"),
]
