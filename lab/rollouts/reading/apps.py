from django.apps import AppConfig


class ReadingConfig(AppConfig):
    name = "lab.rollouts.reading"
