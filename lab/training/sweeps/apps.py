from django.apps import AppConfig


class SweepsConfig(AppConfig):
    name = "lab.training.sweeps"

    def ready(self) -> None:
        from lab.training.sweeps import departures

        departures.register_sweep_hooks()
