from django.apps import AppConfig

from lab.lib import path_ids  # noqa: F401  before any room's paths are read


class AccountsConfig(AppConfig):
    name = "lab.teams.accounts"
    label = "accounts"

    def ready(self) -> None:
        from lab.teams.accounts import receivers  # noqa: F401
