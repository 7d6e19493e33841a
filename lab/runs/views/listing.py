"""Replaced by its slice."""

from typing import Any


def home(request: Any) -> Any:
    raise NotImplementedError


def index(request: Any) -> Any:
    raise NotImplementedError
