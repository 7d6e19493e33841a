from django.apps import AppConfig


class RetentionConfig(AppConfig):
    name = "lab.watching.retention"
