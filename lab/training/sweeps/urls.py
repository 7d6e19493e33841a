"""Sweeps: the list, a new one, one with its trials, and what can be done with it."""

from django.urls import path

from lab.training.sweeps import views

urlpatterns = [
    path("", views.list_sweeps, name="sweeps"),
    path("new/", views.launch_sweep, name="sweep-new"),
    path("<uuid:sweep_id>/", views.show_sweep, name="sweep"),
    path("<uuid:sweep_id>/stop/", views.stop_sweep, name="sweep-stop"),
    path("<uuid:sweep_id>/continue/", views.continue_sweep, name="sweep-continue"),
    path("<uuid:sweep_id>/again/", views.launch_best_again, name="sweep-again"),
    path("<uuid:sweep_id>/delete/", views.delete_sweep, name="sweep-delete"),
]
