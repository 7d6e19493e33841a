"""Addresses of the playground."""

from django.urls import path

from lab.models.playground import views

urlpatterns = [
    path("playground/", views.show_playground, name="playground"),
    path("playground/<uuid:sampling_id>/", views.show_sampling, name="sampling"),
    path("playground/<uuid:sampling_id>/state.json", views.sampling_state, name="sampling-state"),
    path("playground/<uuid:sampling_id>/stop/", views.stop_sampling, name="sampling-stop"),
    path("playground/<uuid:sampling_id>/label/", views.queue_sampling_for_labelling, name="sampling-label"),
]
