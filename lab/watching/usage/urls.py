"""Usage: what the team used, its limits, and what it cost."""

from django.urls import path

from lab.watching.usage import pages

urlpatterns = [
    path("usage/", pages.show_usage, name="usage"),
    path("usage/limits/", pages.edit_usage_limits, name="usage-limits"),
    path("usage/export.csv", pages.export_usage, name="usage-csv"),
    path("usage/left/", pages.show_quota_left, name="usage-left"),
]
