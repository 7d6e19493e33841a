from django.apps import AppConfig


class DoctorConfig(AppConfig):
    name = "lab.rollouts.doctor"
