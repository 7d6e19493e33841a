from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "lab.datasets"

    def ready(self) -> None:
        from lab.datasets import leaving

        leaving.register()
