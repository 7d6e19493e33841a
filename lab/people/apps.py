from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "lab.people"

    def ready(self) -> None:
        from lab.accounts import single_sign_on
        from lab.people.access_changes import connect
        from lab.people.inviting import accept_all

        connect()
        single_sign_on.register(accept_all)
