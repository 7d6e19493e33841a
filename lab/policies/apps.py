from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    name = "lab.policies"

    def ready(self) -> None:
        from lab.policies import leaving
        from lab.policies.removal import objection
        from lab.runs.resuming import OBJECTIONS

        OBJECTIONS.append(objection)
        leaving.begin()
