"""Datasets, their frozen versions, imports and exports."""

from django.urls import path

from lab.data.datasets import exports, importing, pages, tool_pages, version_pages

urlpatterns = [
    path("datasets/", pages.list_datasets, name="datasets"),
    path("datasets/new/", pages.create_dataset, name="dataset-new"),
    path("datasets/import/", importing.import_dataset_file, name="dataset-import"),
    path("datasets/<id:dataset_id>/", pages.show_dataset, name="dataset"),
    path("datasets/<id:dataset_id>/preview/", pages.preview_dataset_rule, name="dataset-preview"),
    path("datasets/<id:dataset_id>/freeze/", pages.freeze_dataset, name="dataset-freeze"),
    path("datasets/versions/<id:version_id>/", version_pages.show_version, name="version"),
    path("datasets/versions/<id:version_id>/since/", version_pages.show_changes_since, name="version-since"),
    path("datasets/versions/<id:version_id>/retry/", version_pages.retry_version_build, name="version-retry"),
    path("datasets/versions/<id:version_id>/export/", exports.export_version, name="version-export"),
    path("datasets/versions/<id:version_id>/tool/", tool_pages.apply_version_tool, name="version-tool"),
    path("datasets/versions/<id:version_id>/tool/preview/", tool_pages.preview_version_tool, name="version-tool-preview"),
    path("datasets/versions/<id:version_id>/diff/", version_pages.show_version_diff, name="version-diff"),
]
