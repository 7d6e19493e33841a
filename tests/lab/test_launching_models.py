"""Launching a model of the hub: what the check says of it, its memory against the workers', and settings that do not suit it."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.test import Client

from lab.training.runs.memory_fit import compare_memory, find_machine
from lab.training.workers.models import Worker
from tests.lab.html_forms import filled
from tests.trainers.hub_of_models import HubOfModels, serve_models

GIB = 2**30


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubOfModels]:
    with serve_models() as served:
        for name, value in {"HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_planted"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        caches["process"].clear()
        yield served


def check(client: Client, recipe: str, name: str) -> str:
    return client.post("/preflight/", filled(client, f"/launch/{recipe}/", **{"policy": "hub", "policy.hub": name})).content.decode()


@pytest.mark.feature(3)
def test_the_panel_names_the_model_its_memory_and_values_that_suit_it(as_owner: Client, hub: HubOfModels) -> None:
    Worker.objects.create(name="small", host="h", pid=1, queues=["gpu"], gpu="NVIDIA L4, 8 GiB", gpu_memory=8 * GIB)
    page = check(as_owner, "grpo", "team/model")
    for text in ("Ready to launch", "Qwen3ForCausalLM", "596M", "40\u202f960 tokens", "bfloat16", "present", "apache-2.0", "the hub", "8.0 GiB"):
        assert text in page, text
    assert "the run does not fit: it is estimated to take" in page.replace("The run", "the run")
    assert 'data-use="stages.0.training.learning_rate" data-value="1e-06"' in page
    assert 'data-use="stages.0.training.max_completion_length" data-value="512"' in page
    assert "LoRA r=16 with gradient checkpointing: 1.7 GiB to 2.2 GiB" in page
    offers = [json.loads(html.unescape(found)) for found in re.findall(r'data-use-all="([^"]*)"', page)]
    assert offers[0] == {
        "stages.0.training.per_device_train_batch_size": "8",
        "stages.0.training.gradient_accumulation_steps": "8",
    }
    assert offers[1]["lora"] is True
    assert (offers[1]["lora.r"], offers[1]["stages.0.training.gradient_checkpointing"]) == ("16", True)
    assert offers[2] == {"stages.0.training.learning_rate": "1e-06", "stages.0.training.max_completion_length": "512"} | offers[0] | offers[1]
    before = len(hub.tokens)
    check(as_owner, "grpo", "team/model")
    assert len(hub.tokens) == before, "an answer is kept while the form changes"


def test_a_model_that_does_not_exist_cannot_be_launched(as_owner: Client, hub: HubOfModels) -> None:
    page = check(as_owner, "grpo", "team/gone")
    assert 'data-problem="policy.hub"' in page
    assert "no such repository (404)" in page
    assert "Ready to launch" not in page


def test_later_stages_are_held_against_the_model_the_chain_starts_from(as_owner: Client, hub: HubOfModels, monkeypatch: pytest.MonkeyPatch) -> None:
    page = check(as_owner, "demo", "team/model")
    assert 'data-use="stages.1.training.learning_rate" data-value="1e-06"' in page
    assert page.count("Qwen3ForCausalLM") == 3
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    page = check(as_owner, "demo", "team/unreachable")
    assert page.count("could not be resolved from here") == 1
    assert 'data-use="stages.1.training.learning_rate" data-value="1e-06"' in page


@pytest.mark.parametrize(
    ("device", "workers", "said"),
    [
        ("auto", [{"gpu": "NVIDIA L4", "gpu_memory": 24 * GIB}, {"memory": 400 * GIB, "queues": ["other"]}], "may not fit"),
        ("auto", [{"gpu": "NVIDIA L4", "gpu_memory": 16 * GIB}], "does not fit"),
        ("auto", [{"gpu": "NVIDIA H200", "gpu_memory": 139 * GIB}], ""),
        ("auto", [{"gpu": "registered before memory was known"}], ""),
        ("cpu", [{"gpu": "NVIDIA L4", "gpu_memory": 24 * GIB, "memory": 64 * GIB}], ""),
        ("cuda", [{"memory": 8 * GIB}], ""),  # no GPU there: another warning says so
        ("auto", [{"memory": 8 * GIB}], "does not fit"),
        ("auto", [], ""),
    ],
)
def test_memory_is_held_against_the_largest_worker_of_the_queue(device: str, workers: list[dict[str, Any]], said: str, db: None) -> None:
    for number, fields in enumerate(workers):
        Worker.objects.create(**{"name": str(number), "host": "h", "pid": 1, "queues": ["gpu"]} | fields)
    machine = find_machine("gpu", device)
    model = {"memory": [{"name": "total", "low": 20 * GIB, "high": 40 * GIB}], "available": machine.memory if machine else 0, "remedy": None}
    report: dict[str, Any] = {"warnings": [], "model": model}
    compare_memory(report, "gpu")
    assert [said in warning["message"] for warning in report["warnings"]] == ([True] if said else [])
