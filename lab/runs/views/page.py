"""Replaced by its slice."""

from typing import Any


def overview(request: Any, run_id: Any) -> Any:
    raise NotImplementedError


def logs(request: Any, run_id: Any) -> Any:
    raise NotImplementedError


def config(request: Any, run_id: Any) -> Any:
    raise NotImplementedError


def metrics(request: Any, run_id: Any) -> Any:
    raise NotImplementedError


def metrics_csv(request: Any, run_id: Any) -> Any:
    raise NotImplementedError
