"""Usage: what the team used, its limits, and what it cost."""

from django.urls import path

from lab.usage import pages

urlpatterns = [
    path("usage/", pages.index, name="usage"),
    path("usage/limits/", pages.limits, name="usage-limits"),
    path("usage/export.csv", pages.export, name="usage-csv"),
    path("usage/left/", pages.left, name="usage-left"),
]
