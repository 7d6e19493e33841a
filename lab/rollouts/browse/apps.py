from django.apps import AppConfig


class BrowseConfig(AppConfig):
    name = "lab.rollouts.browse"

    def ready(self) -> None:
        from lab.rollouts.browse.kept_rollouts import register_viewed_rollouts

        register_viewed_rollouts()
