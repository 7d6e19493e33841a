"""docker-compose.yml: valid, closed to the outside, and its commands run, natively, against real services."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from lab.accounts.models import SetupLink
from lab.lib.processes import Child, kill_tree, start, wait_for
from lab.runs.local_lab import free_port
from lab.workers.models import Worker

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
LAB_SERVICES = ("web", "worker-cpu", "worker-analysis", "worker-cuda")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file with its merges resolved, variables as they are written."""
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def test_it_follows_the_compose_specification(compose: dict[str, Any]) -> None:
    parsed = PyCompose.from_json(json.dumps({key: value for key, value in compose.items() if not key.startswith("x-")}))
    parsed.validate()
    assert set(parsed.service_names()) == {*LAB_SERVICES, "postgres", "redis"}


@pytest.mark.parametrize(("broken", "name"), [("ports", "portz"), ("condition", "kondition"), ("healthcheck", "health")])
def test_the_specification_would_notice_a_mistake(broken: str, name: str) -> None:
    data = yaml.safe_load(FILE.read_text().replace(f"{broken}:", f"{name}:"))
    with pytest.raises(ValueError, match=f"{name}|{broken}"):
        PyCompose.from_json(json.dumps({key: value for key, value in data.items() if not key.startswith("x-")})).validate()


def test_every_service_has_a_health_check_and_comes_back(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name


def test_nothing_is_published_beyond_this_machine(services: dict[str, dict[str, Any]]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert not any(service.get("network_mode") or service.get("privileged") for service in services.values())


def test_no_password_or_key_is_written_down_and_none_has_a_default(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            if name in ("SECRET_KEY", "POSTGRES_PASSWORD", "DATABASE_URL", "REDIS_URL", "REDISCLI_AUTH"):
                assert VARIABLE.search(value), name
                assert all(kind == "?" for _, kind, _ in VARIABLE.findall(value)), name


def test_what_must_outlive_a_container_is_in_a_volume(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql/data"]
    for name in LAB_SERVICES:  # one folder for all: a run's files are read by the web process and by the worker that resumes it
        assert services[name]["volumes"] == ["data:/data"]
    assert set(compose["volumes"]) == {"data", "postgres"}
    assert "ENV LAB_HOME=/data" in (ROOT / "Dockerfile").read_text()


def test_workers_are_chosen_by_profile_and_wait_for_the_migrated_database(services: dict[str, dict[str, Any]]) -> None:
    assert (services["worker-cpu"]["profiles"], services["worker-cuda"]["profiles"]) == (["cpu"], ["cuda"])
    assert services["worker-cuda"]["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert services["worker-analysis"]["profiles"] == ["cpu", "cuda"]
    for name in ("worker-cpu", "worker-analysis", "worker-cuda"):
        assert services[name]["depends_on"] == {"web": {"condition": "service_healthy"}}
    assert {name: wait["condition"] for name, wait in services["web"]["depends_on"].items()} == {
        "postgres": "service_healthy",
        "redis": "service_healthy",
    }


def test_a_worker_has_the_time_to_save_its_run(services: dict[str, dict[str, Any]], settings: Any) -> None:
    grace = float(services["worker-cpu"]["stop_grace_period"].removesuffix("s"))
    assert grace > settings.STOP_GRACE_SECONDS + 15


def test_every_file_the_image_copies_is_there() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".venv", "var", ".git"} <= set(ignored)
    for name in re.findall(r"^COPY (\S+) ", (ROOT / "Dockerfile").read_text(), re.M):
        assert (ROOT / name).exists()
    lock = (ROOT / "requirements.lock").read_text()
    assert re.search(r"^torch==[\d.]+$", lock, re.M)  # a build for one kind of machine would not install on another


def environment_of(service: dict[str, Any], process_env: dict[str, str]) -> dict[str, str]:
    """The service's environment with the tests' servers in the place of its own, as a container would have it: nothing embedded."""
    given = {"SECRET_KEY": "a key of these tests, long enough and of many characters", "REDIS_PASSWORD": "secret", "POSTGRES_PASSWORD": "secret"}

    def value(match: re.Match[str]) -> str:
        return given.get(match[1]) or (match[3] if match[2] == "-" else "")

    written = {name: VARIABLE.sub(value, text) for name, text in service["environment"].items()}
    kept = {name: text for name, text in process_env.items() if name != "LAB_EMBEDDED"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return kept | written | {"PATH": path, "DATABASE_URL": process_env["DATABASE_URL"], "REDIS_URL": process_env["REDIS_URL"]}


def natively(service: dict[str, Any], key: str, port: int) -> list[str]:
    command = service["healthcheck"]["test"][1:] if key == "health" else service["command"]
    return [part.replace("8000", str(port)).replace("0.0.0.0", "127.0.0.1") for part in command]


def test_the_web_service_and_a_worker_run_and_are_found_healthy(
    services: dict[str, dict[str, Any]], process_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    port, children = free_port(), []

    def healthy(name: str) -> bool:
        command = natively(services[name], "health", port)
        env = environment_of(services[name], process_env)
        return subprocess.run(command, env=env, capture_output=True, timeout=30, check=False).returncode == 0

    def begin(name: str) -> Child:
        children.append(start(name, natively(services[name], "run", port), tmp_path, environment_of(services[name], process_env)))
        return children[-1]

    try:
        assert not healthy("web")
        web = begin("web")
        assert wait_for(lambda: healthy("web"), 60, 0.5), web.log.read_text()
        assert "/setup/" in web.log.read_text()
        assert SetupLink.objects.count() == 1
        assert not healthy("worker-cpu")
        worker = begin("worker-cpu")
        assert wait_for(lambda: Worker.objects.alive().exists(), 40), worker.log.read_text()
        assert healthy("worker-cpu")
        for child in children:
            child.process.terminate()
            assert child.process.wait(30) in (0, -15, 143), child.log.read_text()
    finally:
        for child in children:
            kill_tree(child.process.pid)


def test_a_container_without_its_secret_key_does_not_start(services: dict[str, dict[str, Any]], process_env: dict[str, str]) -> None:
    env = environment_of(services["web"], process_env) | {"SECRET_KEY": ""}
    done = subprocess.run(natively(services["web"], "run", free_port()), cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "SECRET_KEY must be set" in done.stderr
