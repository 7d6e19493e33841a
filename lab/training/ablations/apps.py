from django.apps import AppConfig


class AblationsConfig(AppConfig):
    name = "lab.training.ablations"
