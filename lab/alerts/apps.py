from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "lab.alerts"

    def ready(self) -> None:
        from lab.alerts.holding import held
        from lab.people.leaving import register

        register(None, held)
