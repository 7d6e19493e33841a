from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "lab.teams.audit"

    def ready(self) -> None:
        from lab.teams.audit import signals

        signals.connect_audit_signals()
