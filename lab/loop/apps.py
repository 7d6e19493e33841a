from django.apps import AppConfig


class LoopConfig(AppConfig):
    name = "lab.loop"
