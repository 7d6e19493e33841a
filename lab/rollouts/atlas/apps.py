from django.apps import AppConfig


class AtlasConfig(AppConfig):
    name = "lab.rollouts.atlas"
