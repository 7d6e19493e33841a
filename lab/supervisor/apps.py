from django.apps import AppConfig


class SupervisorConfig(AppConfig):
    name = "lab.supervisor"
    label = "supervisor"
