"""Runs that two processes train, over gloo: the same as in one process with the same completions, resumed, stopped and killed.

The ranks are forked from the tests' own process, which has imported what they need; ``test_rank_command.py`` starts them as the lab does.
"""

import os
import signal
import time

import numpy as np
import pytest

from tests.trainers.conftest import current, events_in, fork_ranks, make_spec
from trainers.attempt import rank_processes, ranks, train
from trainers.attempt.callbacks import BetweenSteps
from trainers.contract.arrays import unpack_array
from trainers.contract.events import AttemptFinished, Metrics, Rollout

pytestmark = pytest.mark.training


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    fork_ranks(monkeypatch)


def train_both(tmp_path, trainer, **changes):
    """The events of a run in one process, and of the same run in two with half the batch each."""
    made = []
    for processes in (1, 2):
        folder = tmp_path / f"{trainer}-{processes}"
        size = make_spec(folder, trainer, **changes).training.per_device_train_batch_size
        spec = make_spec(folder, trainer, **changes | {"resources__processes": processes, "training__per_device_train_batch_size": size // processes})
        run = train.run_training if processes == 1 else rank_processes.run_on_ranks
        assert run(spec, folder) == train.FINISHED, [event for event in events_in(folder) if isinstance(event, AttemptFinished)]
        made.append(events_in(folder))
    return made


TIMES = ("speed/", "step_time")


def curves(events):
    measured = current(events, Metrics)
    return {(event.step, name): value for event in measured for name, value in event.values.items() if not name.startswith(TIMES)}


def assert_same_curves(one, two, tolerance=1e-5, but=()):
    left, right = curves(one), curves(two)
    assert left.keys() == right.keys()
    wrong = {key: (left[key], right[key]) for key in left if key[1] not in but and abs(left[key] - right[key]) > tolerance * max(1, abs(left[key]))}
    assert not wrong


def assert_same_rollouts(one, two):
    left, right = ({(e.step, e.phase, e.group, e.sample): e for e in current(events, Rollout)} for events in (one, two))
    assert left.keys() == right.keys()
    for key, event in left.items():
        other = right[key]
        assert (event.completion, event.rewards, event.reference) == (other.completion, other.rewards, other.reference)
        assert event.advantage == pytest.approx(other.advantage, abs=1e-6)
        for name in ("logprobs", "entropies"):
            assert np.allclose(unpack_array(getattr(event, name)), unpack_array(getattr(other, name)), atol=2e-3), key


def test_two_ranks_train_grpo_as_one_process_does_and_report_each_rollout_once(tmp_path, written_answers):
    one, two = train_both(tmp_path, "grpo", training__per_device_train_batch_size=16, evaluation={"prompts": 4, "every": 2})
    assert_same_curves(one, two)
    assert_same_rollouts(one, two)
    assert one[-1].outcome == two[-1].outcome == "finished"


def at_step(monkeypatch, act):
    """``act(rank, step)`` before each optimiser step of every rank."""
    begin = BetweenSteps.on_step_begin

    def on_step_begin(self, args, state, control, **rest):
        act(ranks.index(), state.global_step + 1)
        return begin(self, args, state, control, **rest)

    monkeypatch.setattr(BetweenSteps, "on_step_begin", on_step_begin)


def test_ranks_stop_by_file_and_by_signal_and_go_on_as_if_nothing_had_been(tmp_path, monkeypatch):
    changes = {"training__max_steps": 4, "resources__processes": 2, "limits": {"save_every": 1}}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert rank_processes.run_on_ranks(make_spec(whole, **changes), whole) == train.FINISHED

    def interrupt(rank, step):
        if rank == 1 and step == 1:
            (parts / "stop").touch()
        if rank == 1 and step == 2:
            os.kill(os.getppid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        at_step(patch, interrupt)
        for step in (1, 2):
            assert rank_processes.run_on_ranks(make_spec(parts, **changes), parts) == train.STOPPED
            assert [event.step for event in events_in(parts) if isinstance(event, AttemptFinished)][-1] == step
            (parts / "stop").unlink(missing_ok=step == 2)  # of a signal the parent has removed it
    assert rank_processes.run_on_ranks(make_spec(parts, **changes), parts) == train.FINISHED
    assert curves(events_in(whole)) == curves(events_in(parts))
    assert_same_rollouts(events_in(whole), events_in(parts))
    assert not (parts / rank_processes.SCRATCH).exists()
    assert not (parts / "stop").exists()


def hang():
    time.sleep(100)


def fail():
    raise ValueError("no more")


@pytest.mark.parametrize(
    ("act", "says", "seconds"),
    [
        (hang, "rank 1 did not answer within 2 s", 7),
        (fail, "rank 1: ValueError: no more", 5),
    ],
    ids=["hung", "failed"],
)
def test_a_rank_that_is_gone_ends_the_attempt_soon_and_with_its_name(tmp_path, monkeypatch, act, says, seconds):
    monkeypatch.setattr(ranks, "SILENCE_SECONDS", 2.0)
    struck = tmp_path / "struck"

    def strike(rank, step):
        if rank == 1 and step == 2:
            struck.write_text(str(time.time()))
            act()

    at_step(monkeypatch, strike)
    folder = tmp_path / "run"
    assert rank_processes.run_on_ranks(make_spec(folder, resources__processes=2), folder) == train.FAILED
    ended = events_in(folder)[-1]
    assert (ended.outcome, ended.error) == ("failed", says)
    assert ended.time - float(struck.read_text()) < seconds


def ended(rank, error, time=0.0):
    return rank_processes.Ended(rank, time, error)


@pytest.mark.parametrize(
    ("ends", "codes", "says"),
    [
        ([ended(0, "RuntimeError: Connection closed by peer [127.0.0.1]:5")], {0: 1, 1: -9}, "rank 1 was killed by SIGKILL"),
        ([ended(0, "RuntimeError: Connection closed by peer [127.0.0.1]:5")], {0: 1}, "rank 1 was killed"),
        ([ended(0, "ValueError: no more")], {0: 1}, "rank 0: ValueError: no more"),
        ([ended(0, "ValueError: no more"), ended(1, "RuntimeError: Connection reset by peer", 1.0)], {1: 1}, "rank 0: ValueError: no more"),
        ([ended(0, "RuntimeError: Timed out waiting 2000 ms"), ended(1, "")], {0: 1}, "rank 1 did not answer within 1800 s"),
        ([], {1: 1}, "rank 1 ended with exit code 1"),
        ([ended(0, "")], {0: 1, 1: 5}, "rank 1 could not write: the disk of the run folder is full"),
    ],
)
def test_the_rank_that_began_it_is_named(tmp_path, ends, codes, says):
    assert str(rank_processes.explain_end(ends, codes, make_spec(tmp_path, resources__processes=2))) == says


@pytest.mark.parametrize("trainer", ["sft", "dpo", "kto", "reward"])
def test_two_ranks_train_as_one_process_does(tmp_path, trainer):
    more = {} if trainer == "sft" else {"training__sampled_prompts": 128}  # within an epoch: its last batch is made up differently
    one, two = train_both(tmp_path, trainer, training__max_steps=3, **more)
    assert_same_curves(one, two, but=("kl",) if trainer == "kto" else ())  # TRL estimates it within each process's batch
