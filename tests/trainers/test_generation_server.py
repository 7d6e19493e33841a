"""A run whose completions a vLLM server samples: started, fed with weights, watched and ended by the trainer. A stand-in (vllm_stand_in.py) takes
vLLM's place; vLLM itself and NCCL need a GPU and are not run here."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from safetensors.torch import save
from trl.generation import vllm_client, vllm_generation

from tests.trainers.conftest import events_in, make_spec
from trainers.attempt import generation_server, train
from trainers.attempt.generation_server import BOUND_TO_PARENT, GenerationServer, choose_server_gpus, find_free_ports
from trainers.catalog.entries import built_in_entries
from trainers.checks.preflight import find_turn_problem
from trainers.contract import stacking
from trainers.contract.events import AttemptFinished, Metrics, Phase
from trainers.contract.hyperparameters import GRPO
from trainers.contract.problems import SpecError
from trainers.tasks import registry

ROOT = Path(__file__).resolve().parents[2]
DIFFERENCE = "sampling/sampling_logp_difference/max"


def write_vllm(folder: Path, script: str) -> str:
    """A PATH on which ``vllm`` is this shell script."""
    folder.mkdir()
    (folder / "vllm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "vllm").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture
def standing_in(tmp_path, monkeypatch):
    """Two GPUs and vLLM, as far as the trainer sees."""
    monkeypatch.setenv("PATH", write_vllm(tmp_path / "bin", f'exec "{sys.executable}" "{ROOT}/tests/trainers/vllm_stand_in.py" "$@"'))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("LAB_WORKER_GPUS", "0,1")
    monkeypatch.setattr(train, "refuse_missing", lambda spec: None)
    for module in (vllm_client, vllm_generation, generation_server):
        monkeypatch.setattr(module, "is_vllm_available", lambda *versions, **more: True)
    monkeypatch.setattr(vllm_client.VLLMClient, "init_communicator", lambda self, device: None)

    def send_by_http(self, metadata, named):
        self.session.post(f"{self.base_url}/weights", data=save({name: weights.contiguous().clone() for name, weights in named})).raise_for_status()

    monkeypatch.setattr(vllm_client.VLLMClient, "update_named_params", send_by_http)


@pytest.mark.training
def test_the_weights_that_sample_are_those_that_train_and_a_dead_server_ends_the_run_with_its_name(tmp_path, monkeypatch, standing_in):
    folder, told = tmp_path / "run", {}

    def look_and_kill(session, url, **rest):
        """Before the third batch: what the server has seen; then it is killed as the kernel would, for want of memory."""
        if url.endswith("/v1/completions"):
            told["batches"] = told.get("batches", 0) + 1
            if told["batches"] == 3:
                told.update(json.loads(urllib.request.urlopen(url.replace("/v1/completions", "/told")).read()))
                for process in psutil.Process().children():
                    if any("vllm_stand_in" in part for part in process.cmdline()):
                        process.send_signal(signal.SIGKILL)
                        told["killed"] = time.monotonic()
        return post(session, url, **rest)

    post = vllm_client.requests.Session.post
    monkeypatch.setattr(vllm_client.requests.Session, "post", look_and_kill)
    spec = make_spec(folder, training__generation="server", training__learning_rate=3e-3, training__warmup_steps=0, device="auto")
    assert train.run_training(spec, folder) == train.FAILED
    events = events_in(folder)
    differences = [event.values[DIFFERENCE] for event in events if isinstance(event, Metrics) and DIFFERENCE in event.values]
    assert len(differences) == 2
    assert max(differences) < 1e-3  # at this rate the weights of step 1 would be off by more at step 2
    assert told["asked"]["/weights"] == 3
    assert {"--logprobs-mode", "processed_logprobs", "--host", "127.0.0.1"} <= set(told["command"])
    assert any(isinstance(event, Phase) and event.name == generation_server.PHASE for event in events)
    end = events[-1]
    assert isinstance(end, AttemptFinished)
    assert "the vLLM server was killed by SIGKILL" in end.error
    assert "Loading weights" in end.error  # its last line
    assert time.monotonic() - told["killed"] < 30  # TRL alone would ask a dead server for a minute more


@pytest.mark.training
def test_a_server_that_ends_at_once_is_told_of_before_a_model_is_loaded(tmp_path, monkeypatch, standing_in):
    monkeypatch.setenv("PATH", write_vllm(tmp_path / "broken", "echo no room on the GPU; exit 3"))
    monkeypatch.setattr(train.policies, "load_policy", lambda *rest: pytest.fail("a model was loaded"))
    assert train.run_training(make_spec(tmp_path / "run", training__generation="server", device="auto"), tmp_path / "run") == train.FAILED
    assert "the vLLM server ended with exit code 3; its last lines: no room on the GPU" in events_in(tmp_path / "run")[-1].error


def test_a_killed_trainer_takes_its_server_along():
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            f"child = subprocess.Popen([sys.executable, '-c', {BOUND_TO_PARENT!r}, 'sleep', '600'], start_new_session=True)\n"
            "print(child.pid, flush=True); time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    child = psutil.Process(int(parent.stdout.readline()))
    while child.name() != "sleep":
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    psutil.wait_procs([child], 10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_server_has_gpus_of_its_own_and_ports_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_JUDGE_KEY", "of the judge")
    training = GRPO(generation="server", generation_gpus=2)
    assert choose_server_gpus(training, ["0", "1", "2", "3"]) == ["1", "2"]
    with pytest.raises(SpecError, match="one GPU trains and 2 generate; this worker has 2"):
        choose_server_gpus(training, ["0", "1"])
    one, other = GenerationServer(tmp_path, ["1", "2"], 0), GenerationServer(tmp_path, ["1"], 0)
    assert len({one.ports.port, one.ports.group_port}) == 2
    assert one.build_command()[one.build_command().index("--tensor-parallel-size") + 1] == "2"
    assert one.build_environment()["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert "LAB_JUDGE_KEY" not in one.build_environment()
    assert (one.ports.port, one.ports.group_port) != (other.ports.port, other.ports.group_port)
    assert len(set(find_free_ports(5))) == 5


def test_without_vllm_the_run_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(generation_server, "is_vllm_available", lambda: False)
    with pytest.raises(SpecError, match="vllm is not installed on this worker"):
        generation_server.refuse_missing_server(GRPO(generation="server"))


def test_a_version_that_trl_does_not_know_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", write_vllm(tmp_path / "bin", "exit 0"))
    monkeypatch.setattr(sys.modules["trl.import_utils"], "_is_package_available", lambda name, **more: (True, "0.5.0"))
    with pytest.raises(SpecError, match=r"vLLM versions from .* You have version 0\.5\.0"):
        generation_server.refuse_missing_server(GRPO(generation="server"))


def test_what_a_server_cannot_do_is_refused_before_anything_starts(tmp_path):
    asks_each = next(name for name, entry in built_in_entries().items() if "prompts" in entry["hooks"] and "grpo" in entry["trains"])
    own_way = next(name for name, entry in built_in_entries().items() if "rollout" in entry["owns"] and "grpo" in entry["trains"])
    for method, modes in ((asks_each, {"server"}), (own_way, {"server", "colocate"})):
        for mode in ("transformers", "colocate", "server"):
            spec = make_spec(tmp_path, methods=[{"name": method}], training__generation=mode, device="auto")
            found = {problem.field for problem in stacking.check_stack(spec, built_in_entries()).problems}
            assert ("training.generation" in found) == (mode in modes), (method, mode)
    several = next(task for task in registry.all_tasks().values() if task.max_turns > 1)
    spec = make_spec(tmp_path, task__name=several.name, training__generation="colocate", device="auto")
    assert find_turn_problem(spec, several).field == "training.generation"


def test_specs_from_before_the_name_changed_are_read():
    assert GRPO(use_vllm=True).generation == "colocate"
    assert GRPO(use_vllm=False).generation == "transformers"
    assert "use_vllm" not in GRPO(use_vllm=True).model_dump()
