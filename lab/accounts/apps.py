from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "lab.accounts"
    label = "accounts"
