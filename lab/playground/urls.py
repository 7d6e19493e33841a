"""Addresses of the playground."""

from django.urls import path

from lab.playground import views

urlpatterns = [
    path("playground/", views.playground, name="playground"),
    path("playground/<uuid:sampling_id>/", views.sampling, name="sampling"),
    path("playground/<uuid:sampling_id>/state.json", views.sampling_state, name="sampling-state"),
    path("playground/<uuid:sampling_id>/stop/", views.stop, name="sampling-stop"),
    path("playground/<uuid:sampling_id>/label/", views.label, name="sampling-label"),
]
