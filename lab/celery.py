"""The Celery app. Tasks are found in each app's ``tasks`` module; settings come from Django's with the prefix CELERY_."""

import logging
import os
from typing import Any

from celery import Celery
from celery.signals import after_setup_logger, after_setup_task_logger
from django.conf import settings

from lab.lib.json_log import JsonFormatter
from lab.lib.log_context import ContextFilter
from lab.lib.redaction import RedactionFilter

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")  # Celery looks for it once, here; without it no task of an app is found
app = Celery("lab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def set_up_log(logger: logging.Logger, **more: Any) -> None:
    """A worker's log goes through handlers of Celery's own, in the place of those of the settings."""
    for handler in logger.handlers:
        handler.addFilter(RedactionFilter())
        handler.addFilter(ContextFilter())
        if settings.LOG_FORMAT == "json":
            handler.setFormatter(JsonFormatter())


for signal in (after_setup_logger, after_setup_task_logger):
    signal.connect(set_up_log, dispatch_uid="log")
