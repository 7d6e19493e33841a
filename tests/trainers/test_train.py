"""The ends an attempt can come to, and what it leaves behind."""

import fcntl
import os
import re
import signal
import time
from types import SimpleNamespace

import pytest

from tests.trainers.conftest import ensure_cold_start, events_in, make_spec
from trainers.attempt import stop, train
from trainers.attempt.report import split_nonfinite
from trainers.attempt.stop import Stopped, StopRequest
from trainers.contract.events import AttemptFinished, AttemptStarted, Metrics, Rollout
from trainers.judges import rewards
from trainers.tasks import registry
from trainers.tasks.base import Reward
from trainers.tasks.mini_gsm import MiniGsm


def ending(folder):
    return [event for event in events_in(folder) if isinstance(event, AttemptFinished)][-1]


def test_a_folder_has_one_trainer(tmp_path):
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("12345")
        file.flush()
        assert train.run_training(make_spec(tmp_path), tmp_path) == train.LOCKED
    assert (tmp_path / "lock").read_text() == "12345"
    assert not (tmp_path / "events.jsonl").exists()


def test_several_processes_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert train.run_training(make_spec(tmp_path), tmp_path) == train.REFUSED
    assert "WORLD_SIZE = 2" in capsys.readouterr().err
    assert not (tmp_path / "events.jsonl").exists()


def test_a_policy_that_is_not_there_is_refused(tmp_path):
    spec = make_spec(tmp_path, policy={"kind": "run", "folder": str(tmp_path / "parent")})
    assert train.run_training(spec, tmp_path) == train.REFUSED
    assert (ending(tmp_path).outcome, ending(tmp_path).step) == ("failed", 0)
    assert "parent" in ending(tmp_path).error


@pytest.mark.parametrize(("task", "field"), [({"name": "chess"}, "task.name"), ({"name": "kb", "difficulty": "x"}, "task.difficulty")])
def test_a_task_that_is_not_there_is_refused(tmp_path, task, field):
    assert train.run_training(make_spec(tmp_path, task=task), tmp_path) == train.REFUSED
    assert field in ending(tmp_path).error


def test_a_reward_function_that_is_not_there_is_refused(tmp_path):
    assert train.run_training(make_spec(tmp_path, task={"name": "kb", "rewards": {"beauty": 1.0}}), tmp_path) == train.REFUSED
    assert "beauty" in ending(tmp_path).error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_stop_request_while_it_listens(tmp_path, number):
    before = signal.getsignal(number)
    stop = StopRequest(tmp_path, None)
    assert not stop.requested()
    with stop.listening():
        os.kill(os.getpid(), number)
        assert stop.requested()
    assert stop.why == number.name
    assert signal.getsignal(number) == before


def test_a_time_limit_is_a_stop_request(tmp_path):
    assert not StopRequest(tmp_path, 1.0).requested()
    with pytest.raises(Stopped, match="time limit"):
        StopRequest(tmp_path, 1e-9).check()


def test_numbers_that_json_does_not_have_are_named():
    values, other = split_nonfinite({"a": 1, "b": float("nan"), "c": float("inf"), "d": float("-inf"), "e": None})
    assert values == {"a": 1.0}
    assert other == {"b": "nan", "c": "inf", "d": "-inf", "e": "nan"}


class Rewarded(MiniGsm):
    """Word problems with a reward function under test."""

    def __init__(self, function):
        self.rewards = {"correct": Reward(function, "", 1.0), "length": Reward(lambda text, example: float(len(text)), "", 0.0)}


def with_reward(monkeypatch, function):
    task = Rewarded(function)
    monkeypatch.setattr(registry, "get_task", lambda name: task)
    return task


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda text, example: 1 / 0, "ZeroDivisionError"),
        (lambda text, example: float("nan"), "returned nan"),
        (lambda text, example: "good", "could not convert"),
    ],
    ids=["raises", "not a number", "not a float"],
)
def test_a_reward_that_fails_names_task_function_and_completion(function, said):
    with pytest.raises(rewards.RewardFailed, match=said) as caught:
        rewards.apply_reward_function(Rewarded(function), "correct", "<script>", None)
    assert all(part in str(caught.value) for part in ("mini_gsm", "correct", "<script>"))


def test_a_sum_leaves_out_functions_without_an_opinion():
    assert rewards.weighted_sum({"a": 1.0, "b": None}, {"a": 0.5, "b": 2.0}) == 0.5
    assert rewards.weighted_sum({"a": None}, {"a": 1.0}) is None


@pytest.mark.training
def test_a_reward_function_that_raises_fails_the_run_in_one_line(tmp_path, monkeypatch, capfd):
    ensure_cold_start()
    with_reward(monkeypatch, lambda text, example: 1 / 0)
    assert train.run_training(make_spec(tmp_path), tmp_path) == train.FAILED
    assert "reward function 'correct' of task 'mini_gsm'" in ending(tmp_path).error
    assert "\n" not in ending(tmp_path).error
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.training
def test_answers_without_any_score_do_not_move_the_policy(tmp_path, monkeypatch):
    """No function has an opinion on any answer: no reward, no advantage; weight 0 is measured and not summed."""
    ensure_cold_start()
    with_reward(monkeypatch, lambda text, example: None)
    assert train.run_training(make_spec(tmp_path, training__max_steps=1), tmp_path) == train.FINISHED
    (values,) = [event for event in events_in(tmp_path) if isinstance(event, Metrics)]
    assert values.nonfinite["rewards/correct/mean"] == "nan"
    for event in [event for event in events_in(tmp_path) if isinstance(event, Rollout)]:
        assert (event.reward, event.advantage) == (0.0, 0.0)
        assert event.rewards == {"correct": None, "length": float(len(event.completion))}


@pytest.mark.training
def test_a_time_limit_stops_and_saves(tmp_path, monkeypatch):
    """Whose last minute is over once the first step is reported."""
    spool = tmp_path / "events.jsonl"

    def read_clock() -> float:
        return time.monotonic() + (60 if spool.exists() and b'"event":"metrics"' in spool.read_bytes() else 0)

    monkeypatch.setattr(stop, "time", SimpleNamespace(monotonic=read_clock, time=time.time))
    spec = make_spec(tmp_path, training__max_steps=100_000, limits={"minutes": 1})
    ensure_cold_start()
    assert train.run_training(spec, tmp_path) == train.STOPPED
    step = ending(tmp_path).step
    assert 0 < step < 100_000
    assert (tmp_path / "checkpoints" / f"checkpoint-{step}" / "counters.json").exists()
    assert ending(tmp_path).outcome == "stopped"


@pytest.mark.training
def test_a_stop_before_the_first_step_ends_at_once(tmp_path):
    (tmp_path / "stop").touch()
    assert train.run_training(make_spec(tmp_path), tmp_path) == train.STOPPED
    assert (ending(tmp_path).outcome, ending(tmp_path).step) == ("stopped", 0)


def test_a_stop_file_from_before_the_process_is_removed_and_a_later_one_is_named(tmp_path, caplog):
    file = tmp_path / "stop"
    file.touch()
    os.utime(file, (1_000_000_000, 1_000_000_000))
    request = StopRequest(tmp_path, None)
    assert not request.requested()
    assert not file.exists()
    assert str(file) in caplog.text
    file.touch()
    with pytest.raises(Stopped, match=re.escape(str(file))):
        request.check()
    assert file.exists()  # of this attempt: whoever made it takes it away
    assert StopRequest(tmp_path, None).requested()


@pytest.mark.training
def test_an_interrupted_cold_start_leaves_no_policy_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "stop").touch()
    assert train.run_training(make_spec(folder), folder) == train.STOPPED
    assert not list((tmp_path / "cache").glob("cold-*"))
    assert not any(isinstance(event, AttemptStarted) for event in events_in(folder))


@pytest.mark.training
def test_a_run_goes_on_without_the_policy_it_began_with(tmp_path):
    """Its own checkpoint holds all the weights; only a reference or adapters need the start."""
    from tests.trainers.test_resume import run_until

    start, folder = tmp_path / "start", tmp_path / "run"
    assert train.run_training(make_spec(start, training__max_steps=1), start) == train.FINISHED
    spec = make_spec(folder, policy={"kind": "run", "folder": str(start)})
    assert run_until(spec, folder, 2) == train.STOPPED
    start.rename(tmp_path / "moved")
    assert train.run_training(spec, folder) == train.FINISHED
