from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "lab.training.runs"
    label = "runs"

    def ready(self) -> None:
        from lab.training.runs import departures, occupations, palette

        departures.register_run_hooks()
        occupations.register_occupations()
        palette.register_run_sources()
