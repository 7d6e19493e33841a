"""docs/security.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from lab.teams.accounts.models import Role
from lab.teams.accounts.permission_doc import insert_permission_table, render_permission_doc
from lab.teams.accounts.permissions import ROUTES, TABLE

ROOT = Path(settings.BASE)
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_the_permissions_it_prints_are_those_of_the_table() -> None:
    assert insert_permission_table(TEXT) == TEXT, "write it anew: manage.py permissions --write"
    for permission in TABLE.values():
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{permission.name}` |"))
        assert row.count(" yes ") == len(permission.roles), permission.name
    assert len(Role) == 5


def test_the_command_also_prints_which_addresses_ask_for_what() -> None:
    printed = render_permission_doc()
    assert [name for name in ROUTES if f"`{name}`" not in printed] == []


def test_the_tests_it_names_are_there() -> None:
    named = set(re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", TEXT))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / (name if "/" in name else f"tests/security/{name}")).is_file()] == []


def test_the_code_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:lab|trainers)/[\w/]+\.py)`", TEXT))
    assert [name for name in named if not (ROOT / name).is_file()] == []
