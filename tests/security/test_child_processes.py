"""Every child process gets what its kind may know and nothing else: the start points are counted in the source, and each kind is really started."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.db import connection

from lab import embedded
from lab.data.tasks import fetching
from lab.edges.operations import postgres_tools
from lab.lib import child_environment, processes
from lab.lib.child_environment import DECODER, LAB, SAMPLER, SERVICE, TRAINER, environment_for, restrict_environment
from lab.lib.start_commands import StartCommand
from lab.models.branches import answering
from lab.models.embeddings import vectors
from lab.models.playground import sampling
from lab.rollouts.replay import answers
from lab.supervision.supervisor import trainer_process
from lab.supervision.supervisor.worker_starts import run_start_command
from lab.training.catalog import published
from lab.training.runs import local_lab, model_lookup
from lab.training.runs import preflight as preflight_room

ROOT = Path(settings.BASE)
STARTS = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}  # of subprocess
OTHERS = {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile", "create_subprocess_exec", "create_subprocess_shell"}
MODULES = {"multiprocessing", "concurrent.futures.process", "pty", "pexpect", "sh"}
FILTERED = {  # file → how many processes it starts; a new one is added here together with its filter and its test below
    "lab/training/catalog/published.py": 1,
    "lab/embedded.py": 1,
    "lab/lib/bounded_process.py": 1,
    "lab/lib/processes.py": 1,
    "lab/lib/kept_process.py": 1,
    "lab/supervision/supervisor/trainer_process.py": 1,
    "lab/supervision/supervisor/worker_starts.py": 1,
    "lab/edges/operations/postgres_tools.py": 2,  # PostgreSQL's clients: what a service may know, and for a dump the database's password
}
ALLOWED = {
    "trainers/attempt/code_version.py": 1,  # git; a trainer may not import the filter, and passes four names (tests/trainers/test_recorded.py)
    "trainers/attempt/generation_server.py": 1,  # vLLM on the trainer's machine, without the judge's key (tests/trainers/test_generation_server.py)
    "trainers/rewards/line_child.py": 1,  # compares mathematics with what Python needs and no secret; scores shadows with what the trainer has
    "trainers/sandbox/client.py": 1,  # a server that gets three names of its own and no more (tests/trainers/test_sandbox_attacks.py)
}
FORKS = {
    "lab/lib/fork_server.py",  # has the environment of a decoder itself, and hands it on (tests/lab/test_bounded_process.py)
    "trainers/sandbox/server.py",  # has no environment when it forks (tests/trainers/test_sandbox_attacks.py)
}
SECRETS = ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "PGPASSWORD", "LAB_OIDC_SECRET", "LAB_EMAIL_URL", "LAB_TOKEN", "AWS_SECRET_ACCESS_KEY")
SECRETS += ("GITHUB_TOKEN", "MY_API_KEY", "HF_SOMETHING_TOKEN", "NOBODY_KNOWS_WHAT_THIS_IS", "OPENAI_KEY", "KUBECONFIG", "SSH_AUTH_SOCK")
HUB, JUDGE, OPERATORS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"), ("LAB_JUDGE_KEY",), ("MY_TASK_TOKEN",)
NEEDED = ("PATH", "CUDA_DEVICE_ORDER", "HF_HUB_OFFLINE", "LAB_CACHE")
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


@cache
def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]


def starts(call: ast.Call) -> bool:
    name = call.func
    if isinstance(name, ast.Attribute):
        owner = name.value.id if isinstance(name.value, ast.Name) else ""
        of_os = owner in ("os", "asyncio") and (name.attr in OTHERS or name.attr.startswith(("exec", "spawn")))
        return (owner == "subprocess" and name.attr in STARTS) or of_os
    return isinstance(name, ast.Name) and name.id in ("Popen", "ProcessPoolExecutor", *OTHERS)


def sources() -> list[Path]:
    return [*(ROOT / "lab").rglob("*.py"), *(ROOT / "trainers").rglob("*.py"), ROOT / "manage.py"]


def test_every_place_that_starts_a_process_is_known_and_says_what_the_child_may_know() -> None:
    found: dict[str, int] = {}
    for path in sources():
        for call in calls(path):
            if starts(call):
                name = str(path.relative_to(ROOT))
                if name in FORKS and ast.unparse(call) == "os.fork()":
                    continue
                found[name] = found.get(name, 0) + 1
                assert "env" in {keyword.arg for keyword in call.keywords}, f"{name}:{call.lineno} starts a process without env=environment_for(…)"
    assert found == FILTERED | ALLOWED


def test_nothing_starts_processes_in_another_way() -> None:
    imported = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_bytes()))
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
        if name in MODULES or (isinstance(node, ast.ImportFrom) and name == "subprocess") or name.startswith("multiprocessing.")
    }
    assert imported == set()


def test_environments_of_children_come_from_the_filter_alone() -> None:
    """Nobody builds one out of os.environ: what is passed as ``env`` or to ``processes.start`` is made by environment_for."""
    for path in sources():
        for call in calls(path):
            words = {name.attr for name in ast.walk(call) if isinstance(name, ast.Attribute)}
            begins = starts(call) or (isinstance(call.func, ast.Name) and call.func.id == "start")
            assert not (begins and "environ" in words), f"{path}:{call.lineno}"
    for name, count in FILTERED.items():
        text = (ROOT / name).read_text()
        assert name == "lab/lib/processes.py" or text.count("environment_for(") >= count, name
        assert "**os.environ" not in text, name
        assert "dict(os.environ" not in text, name


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, *HUB, *JUDGE, *OPERATORS, "CUDA_DEVICE_ORDER", "LAB_CACHE"):
        if not os.environ.get(name):
            monkeypatch.setenv(name, f"planted {name}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("LAB_TRAINER_ENV", "MY_TASK_TOKEN , ,")


def hold(seen: dict[str, str], *allowed: str) -> None:
    assert {name for name in (*SECRETS, *HUB, *JUDGE, *OPERATORS) if name in seen} == set(allowed)


def environment_of(process: psutil.Process) -> dict[str, str]:
    return dict(process.environ())


def test_a_trainer(planted: None, tmp_path: Path) -> None:
    trainer = trainer_process.Trainer([sys.executable, "-c", SHOW], tmp_path / "log")
    trainer.process.wait(30)
    seen = json.loads((tmp_path / "log").read_text())
    hold(seen, *HUB, *JUDGE, *OPERATORS)
    assert set(NEEDED) <= set(seen)


class Caught(Exception):
    pass


def caught(monkeypatch: pytest.MonkeyPatch, module: Any, begin: Any) -> dict[str, str]:
    """The environment of what ``begin`` starts in ``module``: its very call, with a program in the place of the command that shows what it has."""
    real = subprocess.Popen
    shown: list[dict[str, str]] = []

    def instead(command: list[str], *arguments: Any, **options: Any) -> Any:
        assert command[:2] == [sys.executable, "-m"]
        assert command[2] in ("trainers", "lab.lib.fork_server")
        kept = {name: value for name, value in options.items() if name in ("env", "cwd")}
        process = real([sys.executable, "-c", SHOW], stdout=subprocess.PIPE, **kept)
        shown.append(json.loads(process.communicate(timeout=120)[0]))
        raise Caught

    monkeypatch.setattr(subprocess, "Popen", instead)
    with pytest.raises(Caught):
        begin()
    return shown[0]


def test_a_preflight(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(caught(monkeypatch, preflight_room, lambda: preflight_room.run_preflight({})), *OPERATORS)  # its server's, which forks every check


def test_a_look_up_of_a_model(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It alone asks the hub before a launch: with the hub's token, without what the operator hands to other packages' code."""
    policy = {"kind": "hub", "name": "team/model"}
    hold(caught(monkeypatch, model_lookup, lambda: model_lookup.look_up_model(policy)), *HUB)


def test_a_replay(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(caught(monkeypatch, answers, answers.start_replay_process), *JUDGE, *OPERATORS)


def test_a_playground(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(caught(monkeypatch, sampling, sampling.start_sampler_process))


def test_a_branch(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's reward functions score what it wrote: those of other packages, and a judge."""
    hold(caught(monkeypatch, answering, answering.start_branching_process), *OPERATORS, *JUDGE)


def test_an_embedder(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(caught(monkeypatch, vectors, vectors.start_embedder_process))


def test_a_fetch_of_a_task(planted: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fetch: Any = SimpleNamespace(kind="hub", settings={"name": "team/questions", "rows": 10})
    hold(caught(monkeypatch, fetching, lambda: fetching.fetch_into(fetch, tmp_path / "rows.jsonl")), *HUB)


def test_a_command_that_starts_a_worker(planted: None) -> None:
    """It asks a scheduler and has what that needs; what the job needs of the lab comes to the job in another way."""
    command = StartCommand("large", (sys.executable, "-c", SHOW), 1, gpus=2, environment=("MY_API_KEY",))
    code, output = run_start_command(command)
    assert code == 0
    seen = json.loads(output)
    hold(seen, "KUBECONFIG", "MY_API_KEY")
    assert (seen["LAB_QUEUE"], seen["LAB_GPUS"]) == ("large", "2")


def test_a_dump_of_the_database(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of PostgreSQL gets the password of the lab's database, in its environment and not among its arguments."""
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "the database's")
    words, environment = postgres_tools.build_connection_words()
    assert "the database's" not in words
    assert environment["PGPASSWORD"] == "the database's"
    hold({name: value for name, value in environment.items() if name != "PGPASSWORD"})


def test_the_making_of_a_catalogue(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "entry_points", lambda group: ["a package's tasks"])
    hold(caught(monkeypatch, published, published.installed_additions), *OPERATORS)


def test_a_web_process_and_a_worker_have_the_labs_settings_and_nobody_elses_secrets(planted: None, tmp_path: Path) -> None:
    child = processes.start_child_process("web", [sys.executable, "-c", SHOW], tmp_path, environment_for(LAB))
    child.process.wait(30)
    seen = json.loads(child.log.read_text())
    own = ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "PGPASSWORD", "LAB_OIDC_SECRET", "LAB_EMAIL_URL", "LAB_TOKEN", "AWS_SECRET_ACCESS_KEY")
    hold(seen, *own, *HUB, *JUDGE, *OPERATORS)


def test_a_lab_is_started_with_that_environment(planted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []

    def keep(name: str, command: list[str], folder: Path, environment: dict[str, str]) -> Any:
        given.append(environment)
        if len(given) == 3:
            raise Caught

    monkeypatch.setattr(local_lab, "start_child_process", keep)
    with pytest.raises(Caught):
        local_lab.LocalLab(1)._start()
    for environment in given:
        assert set(environment) <= {*environment_for(LAB), "LAB_URL", "PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES"}


def test_redis(planted: None, tmp_path: Path) -> None:
    own = embedded.EmbeddedRedis(tmp_path)
    own.start()
    try:
        info: Any = own.client.info("server")
        hold(environment_of(psutil.Process(info["process_id"])))
    finally:
        own.leave(os.getpid())


SERVE = "import os, sys; from lab import embedded; print(embedded.find_lab_home()); embedded.provide_services(); "
SERVE += "print('up', flush=True); sys.stdin.readline()"


def test_postgresql(planted: None, tmp_path: Path) -> None:
    """A server of its own: the tests' own one was started before anything was planted."""
    env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "LAB_EMBEDDED")} | {"LAB_HOME": str(tmp_path / "home")}
    with subprocess.Popen([sys.executable, "-c", SERVE], env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        assert [process.stdout.readline().strip() for _ in range(2)][1] == "up"
        pid = int((tmp_path / "home/postgres/postmaster.pid").read_text().splitlines()[0])
        hold(environment_of(psutil.Process(pid)))
        process.stdin.write("\n")


def test_a_decoder_has_next_to_nothing(planted: None) -> None:
    hold(environment_for(DECODER))
    assert not {name for name in environment_for(DECODER) if name.startswith(("LAB_", "HF_", "CUDA_"))}


def test_what_is_let_through_by_a_prefix_is_never_called_a_secret(planted: None) -> None:
    source = {"CUDA_SECRET": "1", "HF_PASSWORD": "1", "NCCL_DEBUG": "1", "HF_HOME": "1", "TOKENIZERS_PARALLELISM": "1", "http_proxy": "1"}
    assert set(environment_for(SAMPLER, source)) == {"NCCL_DEBUG", "HF_HOME", "TOKENIZERS_PARALLELISM"}
    assert set(environment_for(TRAINER, source)) == {"NCCL_DEBUG", "HF_HOME", "TOKENIZERS_PARALLELISM", "http_proxy"}
    assert environment_for(SAMPLER, {}, OMP_NUM_THREADS="1") == {"OMP_NUM_THREADS": "1"}


def test_inheriting_gives_back_what_it_hid(planted: None) -> None:
    before = dict(os.environ)
    with restrict_environment(SERVICE):
        inside = dict(os.environ)
    with pytest.raises(Caught), restrict_environment(SERVICE):
        raise Caught
    assert "SECRET_KEY" not in inside
    assert dict(os.environ) == before


def test_every_kind_is_tried_here() -> None:
    kinds = {name for name, value in vars(child_environment).items() if isinstance(value, child_environment.ChildKind)}
    assert kinds == {
        "SERVICE",
        "DECODER",
        "SAMPLER",
        "BRANCHER",
        "CATALOGUE",
        "PREFLIGHT",
        "MODEL_LOOKUP",
        "REPLAY",
        "TRAINER",
        "LAB",
        "FETCHER",
        "STARTER",
    }
