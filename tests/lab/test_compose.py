"""docker-compose.yml: valid, closed to the outside, and its commands run, natively, against real services."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from django.core.exceptions import ImproperlyConfigured

from lab.lib import health_watch
from lab.lib.processes import ManagedProcess, kill_tree, start_child_process, wait_for
from lab.lib.secret_files import read_secret_files
from lab.teams.accounts.models import SetupLink
from lab.training.runs.local_lab import free_port
from lab.training.workers.models import Worker

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
HANG = """
import signal, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(60)
"""
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


def parse_compose(text: str) -> PyCompose:
    """With each variable's default in its place, as compose does before it looks at a type. Raises ValueError."""
    data = yaml.safe_load(VARIABLE.sub(lambda match: match[3], text))
    parsed = PyCompose.from_json(json.dumps({key: value for key, value in data.items() if not key.startswith("x-")}))
    parsed.validate()
    return parsed


def test_it_follows_the_compose_specification() -> None:
    parsed = parse_compose(FILE.read_text())
    assert set(parsed.service_names()) == {*LAB_SERVICES, "postgres", "redis", "caddy"}


@pytest.mark.parametrize(("broken", "name"), [("ports", "portz"), ("condition", "kondition"), ("healthcheck", "health")])
def test_the_specification_would_notice_a_mistake(broken: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}|{broken}"):
        parse_compose(FILE.read_text().replace(f"{broken}:", f"{name}:"))


def test_every_service_has_a_health_check_and_comes_back(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert service["restart"] == "unless-stopped", name
        assert service["logging"]["options"]["max-size"] == "20m", name


def test_nothing_but_tls_is_published_beyond_this_machine(services: dict[str, dict[str, Any]]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"web": ["127.0.0.1:8000:8000"], "caddy": ["80:8080", "443:8443", "443:8443/udp"]}
    assert services["caddy"]["profiles"] == ["tls"]
    assert not any(service.get("network_mode") or service.get("privileged") for service in services.values())


def test_passwords_and_keys_are_files_that_are_nowhere_written_down(
    compose: dict[str, Any], services: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    made = make_secrets(tmp_path / "secrets")
    assert {secret["file"] for secret in compose["secrets"].values()} == {f"${{LAB_SECRETS:-./secrets}}/{path.name}" for path in made}
    assert {path.name for path in made} == set(compose["secrets"])
    for service in services.values():
        named = {value for name, value in service.get("environment", {}).items() if name.endswith("_FILE")}
        assert named <= {f"/run/secrets/{name}" for name in service.get("secrets", [])}
        assert not {"SECRET_KEY", "POSTGRES_PASSWORD", "DATABASE_URL", "REDIS_URL", "REDISCLI_AUTH"} & set(service.get("environment", {}))
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in made} == {0o444}  # each container has a user of its own
    again = subprocess.run([ROOT / "deploy/make_secrets.sh", tmp_path / "secrets"], capture_output=True, text=True, check=False)
    assert (again.returncode, "nothing was written" in again.stderr) == (2, True)
    assert {"/secrets/"} <= set((ROOT / ".gitignore").read_text().split())
    assert {"secrets"} <= set((ROOT / ".dockerignore").read_text().split())


def make_secrets(folder: Path) -> list[Path]:
    subprocess.run([ROOT / "deploy/make_secrets.sh", folder], check=True, capture_output=True)
    return sorted(folder.iterdir())


def test_containers_write_into_their_volumes_alone_and_have_limits(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert (service["read_only"], service["cap_drop"], service["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"]), name
        assert {"memory", "pids"} <= set(service["deploy"]["resources"]["limits"]), name
        assert service["tmpfs"], name
        assert service.get("user", "") not in ("0", "root"), name
    assert "\nUSER lab\n" in (ROOT / "Dockerfile").read_text()
    assert "\nUSER 1000:1000\n" in (ROOT / "deploy/Dockerfile.caddy").read_text()
    assert all("user" in services[name] for name in ("postgres", "redis"))


def test_what_must_outlive_a_container_is_in_a_volume(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    assert services["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]  # where images of 18 and later have it
    for name in LAB_SERVICES:  # one folder for all: a run's files are read by the web process and by the worker that resumes it
        assert services[name]["volumes"] == ["data:/data"]
    assert set(compose["volumes"]) == {"data", "postgres", "caddy-data", "caddy-config"}
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
    direct = (ROOT / "requirements.in").read_text()
    assert re.search(r"^torch==[\d.]+$", direct, re.M)  # a build for one kind of machine would not install on another


def test_images_are_named_by_digest(services: dict[str, dict[str, Any]]) -> None:
    named = [service["image"] for service in services.values() if "build" not in service]
    named += re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.M)
    named += re.findall(r"^FROM (\S+)", (ROOT / "deploy/Dockerfile.caddy").read_text(), re.M)
    assert len(named) == 4
    for image in named:
        assert re.fullmatch(r"[a-z]+(:[\w.-]+)?@sha256:[0-9a-f]{64}", image), image


NOT_PASSED = {  # documented, and not for a container
    "LAB_HOME": "the image sets it to its volume",
    "LAB_STATIC": "the image sets it to what it has collected",
    "LAB_TOKEN": "of a script elsewhere that sends its run",
    "LAB_EMBEDDED": "set by the lab for the processes it starts",
    "LAB_WORKER": "set by the lab for the processes it starts",
    "LAB_WORKER_GPUS": "set by the lab for the processes it starts",
    "LAB_QUEUE": "set by the lab for a start command",
    "LAB_GPUS": "set by the lab for a start command",
    "PORT": "of make up",
}


def test_every_documented_setting_reaches_the_containers(services: dict[str, dict[str, Any]]) -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rows = [line.split("|")[1] for line in text.partition("## Settings")[2].splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    assert len(documented) > 30
    for name in LAB_SERVICES:
        given = {variable.removesuffix("_FILE") for variable in services[name]["environment"]}
        assert documented - given - set(NOT_PASSED) == set(), name


def test_a_setting_that_is_not_set_stays_unset(services: dict[str, dict[str, Any]]) -> None:
    """An empty string would be a wrong number of seconds."""
    values = services["web"]["environment"]
    assert values["LAB_LEASE_SECONDS"] is None
    assert not [name for name, value in values.items() if value is not None and ":-}" in value]


@pytest.fixture
def secrets(tmp_path: Path, process_env: dict[str, str]) -> Path:
    """As deploy/make_secrets.sh has made them, with the tests' servers in the place of the containers'."""
    for path in make_secrets(tmp_path / "secrets"):
        if path.name in ("database-url", "redis-url"):
            path.chmod(0o644)
            path.write_text(process_env["DATABASE_URL" if path.name == "database-url" else "REDIS_URL"] + "\n")
    return tmp_path / "secrets"


def environment_of(service: dict[str, Any], process_env: dict[str, str], secrets: Path) -> dict[str, str]:
    """The service's environment as a container would have it: nothing embedded, secrets in files, the volume elsewhere."""

    def value(match: re.Match[str]) -> str:
        return match[3] if match[2] == "-" else ""

    def localize(text: str) -> str:
        return VARIABLE.sub(value, text).replace("/run/secrets", str(secrets)).replace("/data/", f"{secrets.parent}/data/")

    written = {name: localize(text) for name, text in service["environment"].items() if text is not None}
    kept = {name: text for name, text in process_env.items() if name not in ("LAB_EMBEDDED", "DATABASE_URL", "REDIS_URL", "SECRET_KEY")}
    return kept | written | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def natively(service: dict[str, Any], key: str, port: int, pid: int = 0) -> list[str]:
    """``pid``: what stands for the first process of the container; 0: the check has no consequences."""
    command = service["healthcheck"]["test"][1:] if key == "health" else service["command"]
    if key == "health":
        assert command[-2:] == ["--end-when-dead", "1"]
        command = [*command[:-1], str(pid)]
    return [part.replace("8000", str(port)).replace("0.0.0.0", "127.0.0.1") for part in command]


def test_the_web_service_and_a_worker_run_and_are_found_healthy(
    services: dict[str, dict[str, Any]], process_env: dict[str, str], secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    port, children = free_port(), []

    def healthy(name: str) -> bool:
        command = natively(services[name], "health", port)
        env = environment_of(services[name], process_env, secrets)
        return subprocess.run(command, env=env, capture_output=True, timeout=120, check=False).returncode == 0

    def begin(name: str) -> ManagedProcess:
        env = environment_of(services[name], process_env, secrets) | {"LAB_LOG_FORMAT": "json"}
        children.append(start_child_process(name, natively(services[name], "run", port), tmp_path, env))
        return children[-1]

    try:
        assert not healthy("web")
        web = begin("web")
        assert wait_for(lambda: healthy("web"), 120, 0.5), web.log.read_text()
        assert "/setup/" in web.log.read_text()
        assert SetupLink.objects.count() == 1
        assert not healthy("worker-cpu")
        worker = begin("worker-cpu")
        assert wait_for(lambda: Worker.objects.alive().exists(), 120), worker.log.read_text()
        assert healthy("worker-cpu")
        for child in children:
            child.process.terminate()
            assert child.process.wait(30) in (0, -15, 143), child.log.read_text()
        requests = [json.loads(line) for line in web.log.read_text().splitlines() if line.startswith("{")]  # migrate and setup_link talk to people
        asked = [line for line in requests if "GET /health/ready" in line["message"]]
        assert asked
        assert len({line["request"] for line in asked}) == len(asked)
        leaving = "worker: Warm shutdown (MainProcess)"  # written past the log: Celery says it in a signal's handler
        said = [json.loads(line) for line in worker.log.read_text().splitlines() if line not in ("", leaving)]
        assert {"celery.apps.worker"} <= {line["logger"] for line in said}
    finally:
        for child in children:
            kill_tree(child.process.pid)


def test_a_web_process_that_hangs_is_ended_so_that_its_container_is_restarted(
    services: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server that takes connections and never answers, deaf to SIGTERM; and one that answers 500, which is left alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(health_watch, "TIMEOUT", 0.05)
    hung = subprocess.Popen([sys.executable, "-c", HANG], stdout=subprocess.PIPE, text=True)
    try:
        assert hung.stdout
        monkeypatch.setattr(sys, "argv", ["check", f"http://127.0.0.1:{int(hung.stdout.readline())}/health/", "--end-when-dead", str(hung.pid)])
        monkeypatch.setattr(health_watch, "fetch_health_status", lambda url: 500)
        assert [health_watch.main() for _ in range(20)] == [1] * 20
        assert hung.poll() is None
        monkeypatch.undo()
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "tempdir", None)
        for _ in range(health_watch.KILL_AFTER - 1):
            health_watch.note_check(False, hung.pid)
        assert hung.poll() is None
        command = [*natively(services["web"], "health", 8000, hung.pid)]
        command[command.index(next(part for part in command if part.startswith("http")))] = "http://127.0.0.1:1/health/ready"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the image's python is ours
        assert subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=False).returncode == 1
        assert hung.wait(60) == -9
    finally:
        hung.kill()
        hung.wait()


def test_a_container_without_its_secret_key_does_not_start(services: dict[str, dict[str, Any]], process_env: dict[str, str], secrets: Path) -> None:
    env = environment_of(services["web"], process_env, secrets)
    (secrets / "secret-key").unlink()
    done = subprocess.run(natively(services["web"], "run", free_port()), cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"SECRET_KEY_FILE: {secrets}/secret-key cannot be read (No such file or directory)" in done.stderr


def test_secrets_come_from_files_and_mistakes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("a key\n")
    environment = {"SECRET_KEY_FILE": str(file), "LAB_OIDC_SECRET_FILE": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere"}
    read_secret_files(environment)
    read_secret_files(environment)  # a child that has both
    assert (environment["SECRET_KEY"], "LAB_OIDC_SECRET" in environment) == ("a key", False)
    for changes, words in (
        ({"SECRET_KEY": "another"}, "are both set, and differ"),
        ({"REDIS_URL_FILE": str(tmp_path)}, "REDIS_URL_FILE: .* cannot be read"),
        ({"REDIS_URL_FILE": "/dev/null"}, "must hold the secret"),
    ):
        with pytest.raises(ImproperlyConfigured, match=words):
            read_secret_files(environment | changes)
