"""Whether a worker reaches what it needs. Asked before one starts that leaves by itself: a job would hold its machine for nothing."""

from __future__ import annotations

import redis
from django.conf import settings
from django.db import InterfaceError, OperationalError
from redis.backoff import NoBackoff
from redis.retry import Retry

from lab.lib.artifact_store import StoreError, open_store
from lab.lib.redaction import redact_secrets

SECONDS = 5.0


def explain_database_trouble(error: OperationalError | InterfaceError) -> str:
    """In a line, without the password that an address may hold."""
    return f"PostgreSQL (DATABASE_URL) cannot be used: {redact_secrets(' '.join(str(error).split()))}"


def find_unreachable_services() -> list[str]:
    """What is wrong with Redis and the store, a sentence each."""
    problems = []
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=SECONDS, socket_connect_timeout=SECONDS, retry=Retry(NoBackoff(), 0))
    try:
        client.ping()
    except redis.RedisError as error:
        problems.append(f"Redis (REDIS_URL) cannot be used: {redact_secrets(str(error))}")
    finally:
        client.close()
    if settings.STORE_URL:
        try:
            store = open_store(settings.STORE_URL)
            if store:
                store.read_manifest("policies/none")  # is none; asking tells whether it may be asked
        except StoreError as error:
            problems.append(f"The store (LAB_STORE) cannot be used: {redact_secrets(str(error))}")
    return problems
