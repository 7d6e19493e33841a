from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "lab.training.runs"
    label = "runs"

    def ready(self) -> None:
        from lab.training.runs import departures, occupations, palette, system_places

        departures.register_run_hooks()
        occupations.register_occupations()
        palette.register_run_sources()
        system_places.register_system_places()
