from django.apps import AppConfig


class QualityConfig(AppConfig):
    name = "lab.labelling.quality"
