from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    name = "lab.models.policies"

    def ready(self) -> None:
        from lab.models.policies import departures
        from lab.models.policies.removal import explain_resume_objection
        from lab.training.runs.resumption import OBJECTIONS

        OBJECTIONS.register("policies", explain_resume_objection)
        departures.register_push_leaving()
