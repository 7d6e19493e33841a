from django.apps import AppConfig


class ReportsConfig(AppConfig):
    name = "lab.watching.reports"

    def ready(self) -> None:
        from lab.watching.reports.kept_rollouts import register_reported_rollouts
        from lab.watching.reports.palette_source import register_palette_source

        register_palette_source()
        register_reported_rollouts()
