"""Which refusal it was: there is one class for all of them."""

from typing import Any

import pytest

from lab.lib.refusals import Refusal


def refused(status: int = 403, code: str = "", match: str | None = None) -> Any:
    """``pytest.raises`` for a refusal of this status and code."""
    return pytest.raises(Refusal, match=match, check=lambda error: is_refusal(error, status, code))


def is_refusal(result: object, status: int = 403, code: str = "") -> bool:
    return isinstance(result, Refusal) and (result.status, result.code) == (status, code)
