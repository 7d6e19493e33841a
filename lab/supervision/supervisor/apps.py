from django.apps import AppConfig


class SupervisorConfig(AppConfig):
    name = "lab.supervision.supervisor"
    label = "supervisor"

    def ready(self) -> None:
        from lab.supervision.supervisor.uploads import is_uploading
        from lab.training.workers.departure import OCCUPATIONS

        OCCUPATIONS.register("uploads", is_uploading)
