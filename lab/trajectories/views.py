"""Replaced by its slice."""

from typing import Any


def rollouts(request: Any, run_id: Any) -> Any:
    raise NotImplementedError


def tokens(request: Any, rollout_id: int) -> Any:
    raise NotImplementedError
