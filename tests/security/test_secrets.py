"""Secrets do not come into logs, processes or pages by accident."""

from __future__ import annotations

import http.client
import logging
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from celery.signals import after_setup_logger
from django.conf import settings
from django.core.mail import send_mail
from django.test import Client

from lab.celery import set_up_log
from lab.lib.processes import start_child_process, stop_child_processes, wait_for
from lab.lib.redaction import HIDDEN, RedactionFilter, redact_secrets
from lab.supervision.supervisor import logs, trainer_process
from lab.teams.accounts.models import Team
from lab.training.runs.local_lab import SERVER_OPTIONS, free_port
from lab.training.runs.models import LogChunk
from tests.lab.supervisor.spools import make_run

TOKEN = "hf_" + "aB3" * 12
FORMS = [
    TOKEN,
    "lab_" + "a1B2c3D4" + "_" + "x" * 40,
    "sk-proj-" + "0" * 40,
    "ghp_" + "Z" * 36,
    "AKIA" + "ABCDEFGH12345678",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", FORMS)
def test_a_secret_is_known_by_its_form(secret: str) -> None:
    said = redact_secrets(f"before {secret} after")
    assert said == f"before {HIDDEN} after"


def test_passwords_in_addresses_and_tokens_in_headers_are_hidden_and_the_rest_stays() -> None:
    assert redact_secrets("postgres://lab:pa55word@db:5432/lab") == f"postgres://{HIDDEN}@db:5432/lab"
    assert redact_secrets("Authorization: Bearer abcdefghijklmnop") == f"Authorization: Bearer {HIDDEN}"
    for plain in (
        "http://127.0.0.1:8000/runs/",
        "step 12: reward 0.5, half_life 3, lab_run_7, risk-averse",
        "hf_hub is offline",
        "ratio 1:2 @ step 3",
    ):
        assert redact_secrets(plain) == plain


def test_what_the_environment_holds_is_hidden_whatever_it_looks_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_JUDGE_KEY", "correct-horse")
    monkeypatch.setenv("MY_API_KEY", "battery-staple")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "falsefalsefalse")
    assert redact_secrets("correct-horse battery-staple falsefalsefalse") == f"{HIDDEN} {HIDDEN} falsefalsefalse"


@pytest.mark.django_db
def test_a_trainers_log_is_stored_and_shown_without_secrets(team: Team, as_owner: Client) -> None:
    run = make_run(team)
    run.folder.mkdir(parents=True)
    logs.log_file(run.folder, 1).write_text(f"loading with {TOKEN}\nConnectionError: https://me:{TOKEN}@hub.example.org\n")
    assert logs.ship_log_piece(run, 1)
    stored = LogChunk.objects.get(run=run).text
    assert TOKEN not in stored
    assert stored.startswith(f"loading with {HIDDEN}\n")
    assert TOKEN not in logs.last_words(logs.log_file(run.folder, 1))
    assert TOKEN not in as_owner.get(f"/runs/{run.pk}/logs/").content.decode()


def test_the_labs_own_log_holds_none_in_words_arguments_or_tracebacks() -> None:
    try:
        raise RuntimeError(f"cannot reach postgres://lab:{TOKEN}@db")
    except RuntimeError:
        record = logging.getLogger("lab").makeRecord("lab", logging.ERROR, "f", 1, "with %s", (TOKEN,), sys.exc_info())
    assert RedactionFilter().filter(record)
    assert TOKEN not in logging.Formatter().format(record)
    assert settings.LOGGING["handlers"]["stderr"]["filters"][0] == "redacting"


KEY = "a1B2c3D4-e5F6_g7H8"
LINKS = {
    f"/setup/{KEY}/": f"/setup/{HIDDEN}/",
    f"/invitation/{KEY}/": f"/invitation/{HIDDEN}/",
    f"/accounts/password/reset/key/1-cq2x5s-{KEY}/": f"/accounts/password/reset/key/{HIDDEN}/",
    f"/accounts/confirm-email/MQ:1vMabc:{KEY}/": f"/accounts/confirm-email/{HIDDEN}/",
    f"/accounts/login/?next=%2Finvitation%2F{KEY}": f"/accounts/login/?next=%2Finvitation%2F{HIDDEN}",
    f"/accounts/oidc/sso/login/callback/?code={KEY}&state={KEY}&x=1": f"/accounts/oidc/sso/login/callback/?code={HIDDEN}&state={HIDDEN}&x=1",
    f"/api/v1/runs/?token={KEY}": f"/api/v1/runs/?token={HIDDEN}",
    f"https://lab.example.org/x?a=1&api_key={KEY}#b": f"https://lab.example.org/x?a=1&api_key={HIDDEN}#b",
}


@pytest.mark.parametrize("link", LINKS)
def test_links_that_let_people_in_are_hidden(link: str) -> None:
    assert redact_secrets(f'127.0.0.1:5 - "GET {link} HTTP/1.1" 200') == f'127.0.0.1:5 - "GET {LINKS[link]} HTTP/1.1" 200'


@pytest.mark.parametrize(
    "plain", ["/setup/", "/runs/?state=failed&after=12", "/usr/share/setup/tools/x.py", "/t/a/team/invitations/12/again/", "/labels/?key=&q=x"]
)
def test_addresses_without_a_secret_stay(plain: str) -> None:
    assert redact_secrets(plain) == plain


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.django_db(transaction=True)
def test_the_web_processs_log_is_its_owners_and_holds_no_link(process_env: dict[str, str], tmp_path: Path) -> None:
    """A real start: uvicorn's access log, errors and all, in a folder that an earlier version had left open."""
    logs, port = tmp_path / "logs", free_port()
    logs.mkdir(mode=0o755)
    (logs / "web.log").touch(0o644)
    command = [sys.executable, "-m", "uvicorn", "lab.asgi:application", "--host", "127.0.0.1", "--port", str(port), *SERVER_OPTIONS]
    web = start_child_process("web", command, logs, process_env)
    try:

        def asked(path: str) -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request("GET", path)
                return connection.getresponse().status > 0
            except OSError:
                return False

        assert wait_for(lambda: asked("/health/"), 60, 0.3), web.log.read_text()
        for link in LINKS:
            assert asked(link.removeprefix("https://lab.example.org"))
        assert wait_for(lambda: web.log.read_text().count("GET ") > len(LINKS), 60), web.log.read_text()
    finally:
        stop_child_processes([web], 10)
    text = web.log.read_text()
    assert KEY not in text
    assert f"GET /setup/{HIDDEN}/" in text
    assert (mode(logs), mode(web.log)) == (0o700, 0o600)


def test_a_workers_log_goes_through_the_same_filter() -> None:
    logger = logging.Logger("celery")
    logger.addHandler(logging.StreamHandler())
    set_up_log(logger)
    record = logger.makeRecord("celery", logging.INFO, "f", 1, "GET /setup/%s/", (KEY,), None)
    assert logger.handlers[0].filter(record)
    assert record.getMessage() == f"GET /setup/{HIDDEN}/"
    assert set_up_log in [receiver() for _, receiver in after_setup_logger.receivers]


def test_trainers_logs_and_mails_are_their_owners(tmp_path: Path, settings: Any) -> None:
    trainer = trainer_process.Trainer([sys.executable, "-c", "print(1)"], tmp_path / "log")
    trainer.process.wait(30)
    assert mode(tmp_path / "log") == 0o600
    settings.EMAIL_BACKEND, settings.EMAIL_FILE_PATH = "lab.teams.accounts.mail.PrivateFolder", str(tmp_path / "mail")
    send_mail("Reset", f"https://lab.example.org/accounts/password/reset/key/1-{KEY}/", None, ["a@example.org"])
    [mail] = (tmp_path / "mail").iterdir()
    assert (mode(tmp_path / "mail"), mode(mail)) == (0o700, 0o600)
    assert KEY in mail.read_text()


SHOW = "import json, os; print(json.dumps(sorted(os.environ)))"


def test_the_trainers_process_sees_no_secret_of_the_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the child itself, not in the dictionary it was started with."""
    secret = [
        "SECRET_KEY",
        "DATABASE_URL",
        "REDIS_URL",
        "PGPASSWORD",
        "LAB_OIDC_SECRET",
        "LAB_EMAIL_URL",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "MY_API_KEY",
    ]
    for name in [*secret, "HF_TOKEN", "LAB_JUDGE_KEY", "CUDA_VISIBLE_DEVICES", "MY_TASK_TOKEN"]:
        monkeypatch.setenv(name, "set")
    monkeypatch.setenv("LAB_TRAINER_ENV", "MY_TASK_TOKEN")
    trainer = trainer_process.Trainer([sys.executable, "-c", SHOW], tmp_path / "log")
    trainer.process.wait(30)
    seen = (tmp_path / "log").read_text()
    assert [name for name in secret if f'"{name}"' in seen] == []
    for name in ("HF_TOKEN", "LAB_JUDGE_KEY", "CUDA_VISIBLE_DEVICES", "MY_TASK_TOKEN", "PATH"):
        assert f'"{name}"' in seen, name


@pytest.mark.django_db
def test_no_secret_is_an_argument_of_a_process(team: Team) -> None:
    """ps shows arguments to everybody on the machine."""
    words = " ".join(trainer_process.build_trainer_command(make_run(team).folder))
    for value in (settings.SECRET_KEY, settings.DATABASES["default"].get("PASSWORD") or "\0", TOKEN):
        assert value not in words
    compose = (Path(settings.BASE) / "docker-compose.yml").read_text()
    assert "requirepass" not in compose
    assert '"redis-server", "/run/secrets/redis.conf"' in compose
