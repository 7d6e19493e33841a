from django.apps import AppConfig


class SupervisorConfig(AppConfig):
    name = "lab.supervision.supervisor"
    label = "supervisor"
