from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "lab.audit"

    def ready(self) -> None:
        from lab.audit import signals

        signals.connect()
