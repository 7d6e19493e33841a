from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "lab.operations"
