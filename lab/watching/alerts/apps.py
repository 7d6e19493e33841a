from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "lab.watching.alerts"

    def ready(self) -> None:
        from lab.teams.people.departures import register_leaving_hook
        from lab.training.runs.run_marks import SOURCES
        from lab.watching.alerts.chart_marks import list_alert_marks
        from lab.watching.alerts.departures import list_held_alert_rules

        SOURCES.register("alerts", list_alert_marks)
        register_leaving_hook("alerts", None, list_held_alert_rules)
