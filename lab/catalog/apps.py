from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "lab.catalog"
    label = "catalog"
