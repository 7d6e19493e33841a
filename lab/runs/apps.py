from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "lab.runs"
    label = "runs"

    def ready(self) -> None:
        from lab.runs import leaving

        leaving.register()
