"""Datasets, their frozen versions, imports and exports."""

from django.urls import path

from lab.datasets import exporting, importing, pages, version_pages

urlpatterns = [
    path("datasets/", pages.datasets, name="datasets"),
    path("datasets/new/", pages.new, name="dataset-new"),
    path("datasets/import/", importing.upload, name="dataset-import"),
    path("datasets/<int:dataset_id>/", pages.dataset, name="dataset"),
    path("datasets/<int:dataset_id>/preview/", pages.preview, name="dataset-preview"),
    path("datasets/<int:dataset_id>/freeze/", pages.freeze, name="dataset-freeze"),
    path("datasets/versions/<int:version_id>/", version_pages.version, name="version"),
    path("datasets/versions/<int:version_id>/since/", version_pages.since, name="version-since"),
    path("datasets/versions/<int:version_id>/retry/", version_pages.retry, name="version-retry"),
    path("datasets/versions/<int:version_id>/export/", exporting.export, name="version-export"),
    path("datasets/versions/<int:version_id>/diff/", version_pages.diff, name="version-diff"),
]
