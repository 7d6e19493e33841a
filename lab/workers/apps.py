from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "lab.workers"
    label = "workers"
