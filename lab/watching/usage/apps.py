from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "lab.watching.usage"

    def ready(self) -> None:
        from lab.data.datasets import storage_room as room_for_datasets
        from lab.training.runs.hold_reasons import RULES
        from lab.watching.usage import storage_room
        from lab.watching.usage.rule import QuotaRule

        RULES.register("quotas", QuotaRule())
        room_for_datasets.RULES.register("quotas", storage_room.check_storage_quota)
