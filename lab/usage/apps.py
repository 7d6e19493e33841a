from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "lab.usage"

    def ready(self) -> None:
        from lab.runs.holding import RULES
        from lab.usage.rule import QuotaRule

        RULES.append(QuotaRule())
