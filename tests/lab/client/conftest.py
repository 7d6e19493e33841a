"""The client as somebody has it: installed by pip from a lab's own address, on a path with neither the repository nor torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.edges.api import tokens
from lab.teams.accounts.models import Team, User
from policy_lab import Lab
from tests.lab.api.conftest import scopes_of
from tests.lab.client.doorway import Doorway


@pytest.fixture(scope="module")
def installed(live_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed into, beside msgspec alone."""
    folder = tmp_path_factory.mktemp("client")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--target", str(folder), "--find-links", f"{live_server.url}/client/", "policy-lab"], check=True, timeout=60)
    (folder / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    return folder


@pytest.fixture
def secret(team: Team, owner: User) -> str:
    return tokens.create_access_token(team, owner, "client", scopes_of("researcher"), None)[1]


@pytest.fixture
def run_elsewhere(installed: Path, live_server: Any, secret: str, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``python …`` as on another machine: none of this environment's packages, none of the repository."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        known = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(installed), "LAB_URL": live_server.url, "LAB_TOKEN": secret}
        return subprocess.run([sys.executable, "-S", *arguments], env=known, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def doorway(live_server: Any) -> Iterator[Doorway]:
    with Doorway(live_server.url) as way:
        yield way


@pytest.fixture
def lab(doorway: Doorway, secret: str) -> Lab:
    return Lab(doorway.url, secret, patience=20)


def read_json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]
