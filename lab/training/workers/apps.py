from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "lab.training.workers"
    label = "workers"
