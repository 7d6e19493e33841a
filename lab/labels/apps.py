from django.apps import AppConfig


class LabelsConfig(AppConfig):
    name = "lab.labels"

    def ready(self) -> None:
        from lab.labels import joining, leaving
        from lab.labels.labelled import register

        register()
        joining.register()
        leaving.register()
