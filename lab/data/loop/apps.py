from django.apps import AppConfig


class LoopConfig(AppConfig):
    name = "lab.data.loop"

    def ready(self) -> None:
        from lab.data.loop import departures
        from lab.data.loop.match_wish import register_match_wish

        register_match_wish()
        departures.register_feed_leaving()
