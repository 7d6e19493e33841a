from django.apps import AppConfig


class BinConfig(AppConfig):
    name = "lab.models.bin"
