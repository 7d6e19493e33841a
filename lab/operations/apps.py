from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "lab.operations"

    def ready(self) -> None:
        from lab.operations import audited

        audited.connect()
