from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "lab.watching.alerts"

    def ready(self) -> None:
        from lab.teams.people.departures import register_leaving_hook
        from lab.watching.alerts.departures import list_held_alert_rules

        register_leaving_hook("alerts", None, list_held_alert_rules)
