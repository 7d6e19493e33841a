"""Whether the database answers, asked on a connection of its own, so that a pool in use by others says nothing."""

from __future__ import annotations

import logging
import threading
import time

import psycopg
from django.db import connection

log = logging.getLogger(__name__)

SECONDS = 3  # for connecting, and for the answer
KEPT_SECONDS = 1.0  # an answer is good for so long, so that many who ask make one connection
_one_at_a_time = threading.Lock()
_asked: tuple[float, bool] = (float("-inf"), False)


def database_answers() -> bool:
    global _asked
    with _one_at_a_time:
        at, answers = _asked
        if time.monotonic() - at > KEPT_SECONDS:
            answers = ping_database()
            _asked = time.monotonic(), answers
        return answers


def ping_database() -> bool:
    parameters = connection.get_connection_params()
    parameters.pop("pool", None)
    usual = {"connect_timeout": SECONDS, "options": f"-c statement_timeout={SECONDS * 1000}"}
    try:
        with psycopg.connect(**{**parameters, **usual, "autocommit": True}) as own:
            own.execute("SELECT 1")
    except psycopg.Error as error:
        log.warning("the database does not answer: %s", str(error).strip())
        return False
    return True
