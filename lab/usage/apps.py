from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "lab.usage"

    def ready(self) -> None:
        from lab.datasets import room as room_for_datasets
        from lab.runs.holding import RULES
        from lab.usage import room
        from lab.usage.rule import QuotaRule

        RULES.append(QuotaRule())
        room_for_datasets.RULES.append(room.refusal)
