"""Runs beside each other, and two of their rollouts."""

from django.urls import path

from lab.comparison import views

urlpatterns = [
    path("compare/", views.compare, name="compare"),
    path("compare/rollouts/", views.compare_rollouts, name="compare-rollouts"),
]
