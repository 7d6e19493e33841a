"""The Celery app. Tasks are found in each app's ``tasks`` module; settings come from Django's with the prefix CELERY_."""

from celery import Celery

app = Celery("lab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
