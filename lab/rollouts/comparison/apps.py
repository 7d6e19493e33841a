from django.apps import AppConfig


class ComparisonConfig(AppConfig):
    name = "lab.rollouts.comparison"
