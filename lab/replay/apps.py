from django.apps import AppConfig


class ReplayConfig(AppConfig):
    name = "lab.replay"

    def ready(self) -> None:
        from lab.replay import leaving

        leaving.register()
