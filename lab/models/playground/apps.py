from django.apps import AppConfig


class PlaygroundConfig(AppConfig):
    name = "lab.models.playground"
