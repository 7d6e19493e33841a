from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "lab.training.catalog"
    label = "catalog"
