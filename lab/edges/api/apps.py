from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "lab.edges.api"
