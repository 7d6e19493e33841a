"""Bodies that an operation's schema allows, with something more in one of its objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.edges.api.openapi_words import build_example_body, resolve_schema


def bodies(document: dict[str, Any], one: dict[str, Any], more: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, body): the body with ``more`` at the top, then inside each object of a schema of its own that it may hold."""
    for kind, content in one.get("requestBody", {}).get("content", {}).items():
        if kind != "application/json":
            continue
        schema = resolve_schema(document, content["schema"])
        if "properties" not in schema:
            continue
        plain = build_example_body(document, content["schema"], 0)
        yield "", {**plain, **more}
        if not more:
            return
        for name, inner in schema["properties"].items():
            whole = resolve_schema(document, inner)
            if whole.get("type") == "array" and "properties" in resolve_schema(document, whole.get("items", {})):
                yield name, {**plain, name: [{**build_example_body(document, whole["items"], 0), **more}]}
            elif "properties" in whole:
                yield name, {**plain, name: {**build_example_body(document, whole, 0), **more}}
