from django.apps import AppConfig


class AnnotationsConfig(AppConfig):
    name = "lab.rollouts.annotations"

    def ready(self) -> None:
        from lab.rollouts.annotations.kept_rollouts import register_annotated_rollouts

        register_annotated_rollouts()
