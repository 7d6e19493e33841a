from django.apps import AppConfig


class TrajectoriesConfig(AppConfig):
    name = "lab.rollouts.trajectories"
    label = "trajectories"
