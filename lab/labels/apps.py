from django.apps import AppConfig


class LabelsConfig(AppConfig):
    name = "lab.labels"

    def ready(self) -> None:
        from lab.labels import leaving
        from lab.labels.labelled import register

        register()
        leaving.register()
