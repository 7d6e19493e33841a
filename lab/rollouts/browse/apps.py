from django.apps import AppConfig


class BrowseConfig(AppConfig):
    name = "lab.rollouts.browse"
