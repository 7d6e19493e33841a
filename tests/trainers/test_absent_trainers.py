"""What TRL does not have in the pinned version, so that an upgrade that brings it is noticed: docs/methods and the README say so."""

import importlib.util
from pathlib import Path

import pytest
import trl

ROOT = Path(trl.__file__).parent


@pytest.mark.parametrize("name", ["bco", "prm", "nash_md", "xpo"])
def test_trl_has_no_such_trainer(name):
    """Neither as a package of the experimental ones nor as a class anywhere, under any spelling of the name."""
    assert importlib.util.find_spec("trl.experimental.orpo") is not None  # where one would be
    assert importlib.util.find_spec(f"trl.experimental.{name}") is None
    plain = name.replace("_", "")
    named = [line for file in ROOT.rglob("*.py") for line in file.read_text().splitlines() if line.startswith("class ") and "Trainer" in line]
    assert any("ORPOTrainer" in line for line in named)
    assert [line for line in named if plain in line.lower().replace("_", "")] == []
