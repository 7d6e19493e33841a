from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "lab.teams.people"

    def ready(self) -> None:
        from lab.teams.accounts import single_sign_on
        from lab.teams.people.access_changes import connect_access_signals
        from lab.teams.people.invitations import accept_all

        connect_access_signals()
        single_sign_on.WELCOMES.register("people", accept_all)  # their open invitations are theirs to accept
