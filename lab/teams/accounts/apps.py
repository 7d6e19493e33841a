from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "lab.teams.accounts"
    label = "accounts"

    def ready(self) -> None:
        from lab.teams.accounts import receivers  # noqa: F401
