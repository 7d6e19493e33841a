from django.apps import AppConfig


class LabelsConfig(AppConfig):
    name = "lab.labels"
