"""Secrets do not come into logs, processes or pages by accident."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from lab.accounts.models import Team
from lab.lib.redaction import HIDDEN, Redacting, redacted
from lab.runs.models import LogChunk
from lab.supervisor import logs, trainer_process
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
    said = redacted(f"before {secret} after")
    assert said == f"before {HIDDEN} after"


def test_passwords_in_addresses_and_tokens_in_headers_are_hidden_and_the_rest_stays() -> None:
    assert redacted("postgres://lab:pa55word@db:5432/lab") == f"postgres://{HIDDEN}@db:5432/lab"
    assert redacted("Authorization: Bearer abcdefghijklmnop") == f"Authorization: Bearer {HIDDEN}"
    for plain in (
        "http://127.0.0.1:8000/runs/",
        "step 12: reward 0.5, half_life 3, lab_run_7, risk-averse",
        "hf_hub is offline",
        "ratio 1:2 @ step 3",
    ):
        assert redacted(plain) == plain


def test_what_the_environment_holds_is_hidden_whatever_it_looks_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_JUDGE_KEY", "correct-horse")
    monkeypatch.setenv("MY_API_KEY", "battery-staple")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "falsefalsefalse")
    assert redacted("correct-horse battery-staple falsefalsefalse") == f"{HIDDEN} {HIDDEN} falsefalsefalse"


@pytest.mark.django_db
def test_a_trainers_log_is_stored_and_shown_without_secrets(team: Team, as_owner: Client) -> None:
    run = make_run(team)
    run.folder.mkdir(parents=True)
    logs.log_file(run.folder, 1).write_text(f"loading with {TOKEN}\nConnectionError: https://me:{TOKEN}@hub.example.org\n")
    assert logs.ship(run, 1)
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
    assert Redacting().filter(record)
    assert TOKEN not in logging.Formatter().format(record)
    assert settings.LOGGING["handlers"]["stderr"]["filters"] == ["redacting"]


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
    words = " ".join(trainer_process.command(make_run(team).folder))
    for value in (settings.SECRET_KEY, settings.DATABASES["default"].get("PASSWORD") or "\0", TOKEN):
        assert value not in words
    compose = (Path(settings.BASE) / "docker-compose.yml").read_text()
    assert "--requirepass" not in compose
    assert "requirepass $$REDISCLI_AUTH" in compose
