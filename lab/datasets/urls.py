"""Datasets, their frozen versions, imports and exports."""

from django.urls import path

from lab.datasets import importing, pages

urlpatterns = [
    path("datasets/", pages.datasets, name="datasets"),
    path("datasets/new/", pages.new, name="dataset-new"),
    path("datasets/import/", importing.upload, name="dataset-import"),
    path("datasets/<int:dataset_id>/", pages.dataset, name="dataset"),
    path("datasets/<int:dataset_id>/freeze/", pages.freeze, name="dataset-freeze"),
    path("datasets/versions/<int:version_id>/", pages.version, name="version"),
    path("datasets/versions/<int:version_id>/export/", pages.export, name="version-export"),
    path("datasets/versions/<int:version_id>/diff/", pages.diff, name="version-diff"),
]
