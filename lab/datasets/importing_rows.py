"""Rows of an uploaded file, as a build reads them."""

from __future__ import annotations

from lab.datasets import uploads
from lab.datasets.composing import Composed, Made
from lab.datasets.models import Version


def rows_of(version: Version, found: Composed) -> list[Made]:
    """The rows of the file that ``rule["import"]`` names. Raises Refused."""
    return []


def forget(version: Version) -> None:
    """The uploaded file is not needed any more: its rows are in the version."""
    if own := version.rule.get("import"):
        uploads.forget(version.dataset.team, str(own.get("token", "")))
