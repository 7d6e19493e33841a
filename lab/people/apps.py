from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "lab.people"

    def ready(self) -> None:
        from lab.people.access_changes import connect

        connect()
