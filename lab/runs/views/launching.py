"""Replaced by its slice."""

from typing import Any


def recipes(request: Any) -> Any:
    raise NotImplementedError


def demo(request: Any) -> Any:
    raise NotImplementedError


def preflight(request: Any) -> Any:
    raise NotImplementedError


def form(request: Any, recipe: str) -> Any:
    raise NotImplementedError
