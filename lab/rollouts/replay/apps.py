from django.apps import AppConfig


class ReplayConfig(AppConfig):
    name = "lab.rollouts.replay"

    def ready(self) -> None:
        from lab.rollouts.replay.models import Replay, ReplayStatus
        from lab.teams.people.departures import register_waiting_work

        register_waiting_work("replay", Replay, "what-if question", queued=ReplayStatus.QUEUED, ended=ReplayStatus.FAILED, verb="dropped")
