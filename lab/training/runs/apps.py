from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "lab.training.runs"
    label = "runs"

    def ready(self) -> None:
        from lab.training.runs import departures

        departures.register_run_hooks()
