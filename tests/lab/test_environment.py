"""What attempts recorded of their environment: stored once for many, without secrets, on the run's page, as files, in the API and compared."""

import json
from typing import Any

import pytest
from django.test import Client

from lab.rollouts.comparison.environments import build_environment_table
from lab.teams.accounts.models import Team, User
from lab.training.runs.environment import write_requirement
from lab.training.runs.models import Run
from lab.training.runs.package_lists import PackageList
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, started, store
from trainers.contract.events import AnyEvent, Code, Environment, Hardware, Inputs, Memory, Package
from trainers.contract.memory import MemoryPart

COMMIT, OTHER = "a" * 40, "b" * 40
PACKAGES = [
    Package("numpy", "2.4.0"),
    Package("torch", "2.13.0"),
    Package("own-task", "1.0", url="https://github.com/ada/own.git", commit=OTHER),
]


def environment(commit: str = COMMIT, changed: bool | None = False, packages: list[Package] = PACKAGES, **more: Any) -> Environment:
    hardware = Hardware("Linux-6.1", "Xeon", 16, ["NVIDIA H100 80GB HBM3"], "570.1", "12.8")
    return Environment(Code(commit, changed, "git"), packages, PACKAGES[2], hardware, **more)


def inputs(attempt: int = 1, sha256: str = "c" * 64) -> Inputs:
    return Inputs(attempt=attempt, time=1.7e9, source="task", rows=600, sha256=sha256, heldout_rows=256, heldout_sha256="d" * 64, weights="e" * 64)


def recorded(team: Team, *events: AnyEvent) -> Run:
    run = make_run(team, spec={"recipe": "grpo", "training": {"trainer": "grpo"}, "task": {"name": "mini_gsm"}})
    store(run, *(events or (started(environment=environment()), inputs())))
    return run


def shown(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.feature(82)
def test_the_page_of_a_run_says_all_of_it(team: Team, as_owner: Client) -> None:
    page = shown(as_owner, f"/runs/{recorded(team).pk}/config/")
    for text in (
        COMMIT,
        "no uncommitted changes",
        "own-task 1.0",
        OTHER[:12],
        "c" * 64,
        "600 rows drawn with the run&#x27;s seed",
        "d" * 64,
        "256 rows",
    ):
        assert text in page
    for text in ("e" * 64, "SHA-256 of the weights", "NVIDIA H100 80GB HBM3", "570.1", "12.8", "16 cores", "3 packages", "requirements.txt"):
        assert text in page
    assert f'data-copy="{COMMIT}"' in page


def memory(peak: int, measured: Any = "cuda") -> Memory:
    parts = [MemoryPart("weights", 2 << 30, 2 << 30, "parameters × 4 bytes"), MemoryPart("total", 5 << 30, 9 << 30)]
    return Memory(attempt=1, time=1.7e9, parts=parts, peak=peak, measured=measured, device_memory=24 << 30)


def test_the_measured_peak_stands_beside_the_estimate(team: Team, as_owner: Client) -> None:
    run = recorded(team, started(environment=environment()), memory(1 << 30), memory(7 << 30))
    page = " ".join(shown(as_owner, f"/runs/{run.pk}/config/").split())
    assert "<dt>Measured peak</dt><dd>7.0 GiB</dd>" in page
    assert "<dt>Estimated</dt><dd>5.0 GiB to 9.0 GiB</dd>" in page
    assert '<dt>Weights</dt><dd>2.0 GiB <span class="muted small">parameters × 4 bytes</span>' in page
    assert "allocated on the GPU at most" in page
    assert json.loads(shown(as_owner, f"/runs/{run.pk}/attempts/1/environment.json"))["memory"]["peak"] == 7 << 30
    process = recorded(team, started(environment=environment()), memory(1 << 30, "process"))
    assert "resident memory of the whole process" in shown(as_owner, f"/runs/{process.pk}/config/")


def test_changes_are_said(team: Team, as_owner: Client) -> None:
    run = recorded(team, started(environment=environment(changed=True)))
    assert "with uncommitted changes" in shown(as_owner, f"/runs/{run.pk}/config/")


@pytest.mark.feature(82)
def test_a_run_of_an_older_version_says_not_recorded(team: Team, as_owner: Client) -> None:
    run = recorded(team, started())
    page = shown(as_owner, f"/runs/{run.pk}/config/")
    assert page.count("not recorded") >= 7
    assert f"{run.pk}/attempts/1/requirements.txt" not in page
    assert as_owner.get(f"/runs/{run.pk}/attempts/1/requirements.txt").status_code == 404
    body = json.loads(shown(as_owner, f"/runs/{run.pk}/attempts/1/environment.json"))
    assert (body["environment"], body["inputs"], body["packages"]) == (None, None, None)


def test_the_list_of_packages_is_stored_once_for_all_attempts_that_have_it(team: Team, stranger: User) -> None:
    other_team = stranger.memberships.get().team
    first, second = recorded(team), recorded(team)
    store(second, started(2, environment=environment(OTHER)), inputs(2))
    recorded(team, started(environment=environment(packages=PACKAGES[:2])))
    assert PackageList.objects.of(team).count() == 2
    assert len({attempt.packages_id for run in (first, second) for attempt in run.attempts.all()}) == 1
    recorded(other_team)
    assert PackageList.objects.of(other_team).count() == 1  # teams share none
    assert PackageList.objects.of(team).count() == 2


def test_secrets_do_not_reach_the_database(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "value-of-the-token")
    url = "https://ada:hunter2hunter2@git.example.org/own.git"
    packages = [Package("own", "1", url=url), Package("two", "1", url="https://host/?token=abcdefghijk"), Package("three", "value-of-the-token")]
    command = ["trainers", "--key", "value-of-the-token"]
    run = recorded(team, started(environment=environment(packages=packages), command=command))
    attempt = run.attempts.get()
    assert attempt.packages is not None
    kept = json.dumps([attempt.packages.packages, attempt.command, attempt.environment])
    for secret in ("hunter2hunter2", "abcdefghijk", "value-of-the-token"):
        assert secret not in kept


def test_what_a_script_claims_is_text_and_has_an_end(team: Team, as_owner: Client) -> None:
    packages = [Package(payload, payload, url=payload, commit=payload) for payload in map(stored, PAYLOADS)] + [Package("x" * 10_000, "1")] * 6000
    run = recorded(team, started(environment=environment(PAYLOADS[0], packages=packages)))
    attempt = run.attempts.get()
    assert attempt.packages is not None
    assert len(attempt.packages.packages) == 5000
    assert max(len(package["name"]) for package in attempt.packages.packages) == 500
    assert "<script>alert" not in shown(as_owner, f"/runs/{run.pk}/config/")


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ({"name": "torch", "version": "2.13.0+cpu"}, "torch==2.13.0+cpu"),
        ({"name": "own", "version": "1", "url": "https://host/own.git", "commit": OTHER}, f"own @ git+https://host/own.git@{OTHER}"),
        ({"name": "own", "version": "1", "url": "https://host/own-1.whl"}, "own @ https://host/own-1.whl"),
        ({"name": "own", "version": "1", "url": "file:///srv/own"}, "# own==1 was installed from a folder or file of the worker"),
        ({"name": "--index-url evil", "version": "1"}, "# left out: --index-url evil==1"),
        ({"name": "a", "version": "1\n--pre"}, "# left out: a==1\\n--pre"),
        ({"name": "own", "version": "1", "url": "https://host/\n--pre"}, "# own==1 was installed from a folder or file of the worker"),
    ],
)
def test_a_line_of_the_requirements_is_a_requirement_or_a_comment(package: dict[str, str], line: str) -> None:
    assert write_requirement(package) == line


@pytest.mark.feature(82)
def test_it_is_downloaded_as_json_and_for_pip(team: Team, as_owner: Client, as_stranger: Client) -> None:
    run = recorded(team)
    body = json.loads(shown(as_owner, f"/runs/{run.pk}/attempts/1/environment.json"))
    assert body["environment"]["code"] == {"commit": COMMIT, "changed": False, "source": "git"}
    assert body["inputs"]["sha256"] == "c" * 64
    lines = shown(as_owner, f"/runs/{run.pk}/attempts/1/requirements.txt").splitlines()
    assert lines[1:] == ["numpy==2.4.0", "torch==2.13.0", f"own-task @ git+https://github.com/ada/own.git@{OTHER}"]
    for name in ("environment.json", "requirements.txt"):
        assert as_owner.get(f"/runs/{run.pk}/attempts/2/{name}").status_code == 404
        assert as_owner.get(f"/runs/{run.pk}/attempts/{10**30}/{name}").status_code == 404
        assert as_stranger.get(f"/runs/{run.pk}/attempts/1/{name}").status_code == 404


@pytest.mark.feature(82)
def test_the_comparison_shows_what_differs(team: Team, as_owner: Client) -> None:
    newer = [Package("numpy", "2.4.0"), Package("torch", "2.12.1")]
    runs = [recorded(team), recorded(team, started(environment=environment(OTHER, True, newer)), inputs(sha256="f" * 64)), recorded(team, started())]
    rows = {row.key: row.values for row in build_environment_table(runs)}
    assert rows["code.commit"] == [COMMIT, f"{OTHER} (changed)", "not recorded"]
    assert rows["data.sha256"] == ["c" * 64, "f" * 64, "not recorded"]
    assert rows["package.torch"] == ["2.13.0", "2.12.1", "not recorded"]
    assert rows["package.own-task"] == [f"1.0 ({OTHER[:12]})", "–", "not recorded"]
    two = {row.key: row for row in build_environment_table(runs[:2])}
    assert "package.numpy" not in two
    assert not two["hardware.driver"].changed
    page = shown(as_owner, f"/compare/?run={runs[0].number}&run={runs[1].number}")
    assert "Environment of the last attempt" in page
    assert "package.torch" in page
    assert build_environment_table(runs[2:]) == []
