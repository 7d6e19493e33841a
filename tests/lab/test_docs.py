"""What the documents promise about names is true."""

import re
from pathlib import Path

import pytest

from tests import formats_page
from tests.features import DOCUMENT, find_contradictions, find_marked_tests, write_document

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_is_documented() -> None:
    read = {
        name
        for package in ("lab", "trainers")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r'"(LAB_[A-Z_]*[A-Z])"', path.read_text())
    }
    assert len(read) > 10
    documented = set(re.findall(r"LAB_[A-Z_]*[A-Z]", (ROOT / "docs/architecture.md").read_text()))
    assert read == documented


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_links_and_pictures_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("room", ["trainers", "lab"])
def test_the_map_names_every_room_that_is_there(room: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    folders = {path.name for path in (ROOT / room).iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert {name for name in folders if f"`{name}" not in text} == set()


def test_every_feature_is_shown_by_a_test_or_said_to_be_lacking() -> None:
    tests = find_marked_tests()
    assert find_contradictions(tests) == []
    assert DOCUMENT.read_text() == write_document(tests), "make features writes docs/features.md anew"


def test_every_format_is_documented_with_an_example() -> None:
    assert formats_page.DOCUMENT.read_text() == formats_page.write_document(), "make formats writes docs/formats.md anew"
    assert set(formats_page.BY_HAND) == {name for name, one in formats_page.IMPORTED.items() if one.by_hand}
