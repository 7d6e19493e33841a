from django.apps import AppConfig


class LoopConfig(AppConfig):
    name = "lab.loop"

    def ready(self) -> None:
        from lab.loop import leaving
        from lab.loop.match_wish import register

        register()
        leaving.register()
