"""The web lab: launch, watch, read and label runs. It meets ``trainers`` in files and imports only its torch-free modules."""

from lab.celery import app as celery_app

__all__ = ["celery_app"]
