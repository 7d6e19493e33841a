from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "lab.accounts"
    label = "accounts"

    def ready(self) -> None:
        from lab.accounts import receivers  # noqa: F401
