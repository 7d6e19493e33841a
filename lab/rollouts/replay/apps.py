from django.apps import AppConfig


class ReplayConfig(AppConfig):
    name = "lab.rollouts.replay"

    def ready(self) -> None:
        from lab.rollouts.replay import departures

        departures.register_replay_hooks()
