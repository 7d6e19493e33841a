"""A run that trains what a cold start is leaves it to later runs."""

import fcntl

import pytest

from tests.trainers.conftest import ensure_cold_start, make_spec
from trainers.__main__ import main
from trainers.attempt import cold_start, shared_cold_start
from trainers.policies import tiny

UNTRAINED = {"kind": "tiny", "cold_start": False}


def as_cold_start(folder, **changes):
    how = cold_start.describe_cold_start(cold_start.build_cold_start_config())
    return make_spec(folder, "sft", **{"policy": UNTRAINED, "training": how, "evaluation": {"prompts": 2}, **changes})


@pytest.mark.training
def test_it_is_the_cold_start_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_COLD_START_STEPS", "2")
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "trained"))
    trained = (ensure_cold_start() / "model.safetensors").read_bytes()
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "shared"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(as_cold_start(tmp_path / "run").model_dump_json())
    assert main(["run", str(tmp_path / "run" / "run.json")]) == 0
    monkeypatch.setattr(cold_start, "SFTAdapter", None)  # it is not trained again
    shared = ensure_cold_start()
    assert shared.parent == tmp_path / "shared"
    assert (shared / "model.safetensors").read_bytes() == trained


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"policy": {"kind": "tiny"}},
        {"lora": {"r": 2}},
        {"training__learning_rate": 0.1},
        {"training__max_steps": 40},
        {"device": "cuda"},
    ],
)
def test_what_is_trained_otherwise_is_not(tmp_path, changes):
    assert shared_cold_start.equals_cold_start(as_cold_start(tmp_path))
    assert not shared_cold_start.equals_cold_start(as_cold_start(tmp_path, **changes))


def test_who_finishes_does_not_wait_for_another_that_trains_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(tiny, "cached_cold_start", lambda *given: pytest.fail("it would wait"))
    with (tmp_path / ".cold-mini_gsm-easy-1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shared_cold_start.share_as_cold_start(as_cold_start(tmp_path / "run"), tmp_path) is False
