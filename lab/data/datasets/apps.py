from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "lab.data.datasets"

    def ready(self) -> None:
        from lab.data.datasets import departures

        departures.register_folder_clearer()
