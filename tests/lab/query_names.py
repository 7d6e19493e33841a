"""Which names pages look up in a query or a form, so that a walk over all pages asks only what can change an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from django.http import HttpResponseBase, QueryDict
from django.test import Client

EVERYTHING = "*"  # goes over all that was sent, whatever its name
BY_NAME = ("get", "getlist", "__getitem__", "__contains__", "pop", "setdefault")
OVER_ALL = ("__iter__", "__len__", "keys", "values", "items", "lists", "dict")
PASSED_ON = ("urlencode", "copy", "__copy__", "__deepcopy__")  # go over all themselves, but nothing is looked up yet


@contextmanager
def record_names(names: set[str]) -> Iterator[None]:
    """Adds to ``names`` what is looked up in a query or a form meanwhile; ``EVERYTHING`` where something goes over all of it."""
    passing = 0

    def look_up(usual: Callable[..., Any], name: str | None) -> Callable[..., Any]:
        def recorded(self: QueryDict, *arguments: Any, **named: Any) -> Any:
            if not passing:
                names.add(name or str(arguments[0]))
            return usual(self, *arguments, **named)

        return recorded

    def pass_on(usual: Callable[..., Any]) -> Callable[..., Any]:
        def unrecorded(self: QueryDict, *arguments: Any, **named: Any) -> Any:
            nonlocal passing
            passing += 1
            try:
                return usual(self, *arguments, **named)
            finally:
                passing -= 1

        return unrecorded

    changed = {method: look_up(getattr(QueryDict, method), None) for method in BY_NAME}
    changed |= {method: look_up(getattr(QueryDict, method), EVERYTHING) for method in OVER_ALL}
    changed |= {method: pass_on(getattr(QueryDict, method)) for method in PASSED_ON}
    with patch.multiple(QueryDict, **changed):
        yield


def choose_queries(queries: list[dict[str, Any]], names: set[str]) -> list[dict[str, Any]]:
    """Those of the queries that hold one of the names."""
    return [query for query in queries if EVERYTHING in names or names & query.keys()]


def ask_while_read(client: Client, path: str, queries: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], HttpResponseBase, bytes]]:
    """Query, answer and body of one query after the other, until a page has looked up no name of the last one: its answer is that of no query."""
    for query in queries:
        names: set[str] = set()
        with record_names(names):
            response = client.get(path, query)
            body = b"".join(response.streaming_content) if response.streaming else response.content
        yield query, response, body
        if not choose_queries([query], names):
            return
