"""Edits of a running run: checked like a launch, applied once at their boundary, the same after a kill, and a run without them."""

import json
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.test_resume import answers, learned
from trainers.attempt import train
from trainers.attempt.edits import Edits, read_applied_edits
from trainers.attempt.report import Reporter
from trainers.contract.edits import APPLIED, REQUESTS, TaskOffer, find_edit_problems, list_editable_settings
from trainers.contract.events import Edited, Metrics
from trainers.contract.spool import SPOOL, SpoolWriter, last_reported_step
from trainers.tasks.registry import get_task

pytestmark = pytest.mark.feature(104)

OFFER = TaskOffer({"correct": 1.0, "brevity": 0.0}, ["easy", "medium", "hard"])
STEPS = 7
GRPO = {
    "training__max_steps": STEPS,
    "training__beta": 0.05,
    "training__lr_scheduler_type": "linear",
    "limits": {"save_every": 3, "keep_checkpoints": 5},
}
FIRST = {
    "key": "first",
    "changes": {"training.learning_rate": 1e-3, "training.temperature": 0.7, "task.rewards.working": 0.5, "task.mix.hard": 1.0, "training.beta": 0.0},
}
SECOND = {"key": "second", "changes": {"training.beta": 0.2}}


class Crash(RuntimeError): ...


def ask(folder, *requests: dict[str, Any]) -> None:
    (folder / REQUESTS).parent.mkdir(parents=True, exist_ok=True)
    with (folder / REQUESTS).open("a") as file:
        file.writelines(json.dumps(request) + "\n" for request in requests)


def train_with(spec, folder, asked: dict[int, dict[str, Any]], crash: int = 0) -> int:
    """``asked``: what somebody asks for once a step is reported; after ``crash`` the attempt fails."""
    report = Reporter.metrics

    def metrics(self, at, values, tokens=0):
        report(self, at, values, tokens)
        if at in asked:
            ask(folder, asked[at])
        if at == crash:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reporter, "metrics", metrics)
        return train.run_training(spec, folder)


def edited(folder) -> list[tuple[int, str, int]]:
    return [(event.attempt, event.key, event.step) for event in events_in(folder) if isinstance(event, Edited)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Any]:
    """The same run as it was launched, and edited twice while it trained."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("plain", "edited")}
    assert train.run_training(make_spec(found["plain"], **GRPO), found["plain"]) == train.FINISHED
    assert train_with(make_spec(found["edited"], **GRPO), found["edited"], {3: FIRST, 5: SECOND}) == train.FINISHED
    return found


@pytest.mark.training
def test_an_edit_holds_from_its_boundary_and_changes_nothing_before_it(runs):
    plain, changed = learned(runs["plain"]), learned(runs["edited"])
    assert edited(runs["edited"]) == [(1, "first", 4), (1, "second", 6)]
    assert {step: changed[step] for step in (1, 2, 3)} == {step: plain[step] for step in (1, 2, 3)}
    assert all(changed[step]["learning_rate"] == pytest.approx(plain[step]["learning_rate"] * 1e-3 / 3e-4) for step in range(4, STEPS + 1))
    assert ["kl" in changed[step] for step in range(1, STEPS + 1)] == [True, True, True, False, False, True, True]
    asked = {step: {row[3] for row in answers(runs["edited"]) if row[0] == step} for step in range(1, STEPS + 1)}
    assert asked[4] != {row[3] for row in answers(runs["plain"]) if row[0] == 4}
    event = next(event for event in events_in(runs["edited"]) if isinstance(event, Edited))
    assert event.changes == FIRST["changes"]
    assert event.before == {
        **dict.fromkeys(("task.rewards.working", "task.mix.hard"), 0.0),
        "training.learning_rate": 3e-4,
        "training.temperature": 1.0,
        "training.beta": 0.05,
    }


@pytest.mark.training
def test_a_run_that_dies_after_an_edit_applies_it_at_the_same_step_again(tmp_path, runs):
    spec = make_spec(tmp_path, **GRPO)
    assert train_with(spec, tmp_path, {3: FIRST}, crash=5) == train.FAILED
    ask(tmp_path, SECOND)  # steps 4 and 5, which are trained again, were done without it
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert edited(tmp_path) == [(1, "first", 4), (2, "first", 4), (2, "second", 6)]
    assert learned(tmp_path) == learned(runs["edited"])
    assert answers(tmp_path) == answers(runs["edited"])
    assert [(edit.key, edit.step) for edit in read_applied_edits(tmp_path / APPLIED)] == [("first", 4), ("second", 6)]


@pytest.mark.training
def test_a_checkpoint_before_the_edit_goes_on_as_if_it_had_never_been(tmp_path, runs):
    """What a fork without the edit begins with."""
    shutil.copytree(runs["edited"] / "checkpoints/checkpoint-3", tmp_path / "checkpoints/checkpoint-3")
    assert train.run_training(make_spec(tmp_path, **GRPO), tmp_path) == train.FINISHED
    plain = learned(runs["plain"])
    assert learned(tmp_path) == {step: plain[step] for step in range(4, STEPS + 1)}


@pytest.mark.training
def test_dpo_takes_a_learning_rate_and_a_beta(tmp_path):
    plain, changed = tmp_path / "plain", tmp_path / "changed"
    settings = {"training__max_steps": 3, "training__sampled_prompts": 24}
    assert train.run_training(make_spec(plain, "dpo", **settings), plain) == train.FINISHED
    shutil.copytree(plain, changed, ignore=lambda folder, names: [name for name in names if name != "pairs.jsonl"])
    asked = {"key": "dpo", "changes": {"training.learning_rate": 5e-4, "training.beta": 1.0}}
    assert train_with(make_spec(changed, "dpo", **settings), changed, {1: asked}) == train.FINISHED
    before, after = learned(plain), learned(changed)
    assert after[1] == before[1]
    assert after[3]["loss"] != before[3]["loss"]  # until step 2 the policy is the reference, and the loss is ln 2 whatever beta is
    assert after[2]["learning_rate"] == pytest.approx(before[2]["learning_rate"] * 5)
    assert edited(changed) == [(1, "dpo", 2)]


class Recorder:
    """Stands for a trainer: what it was told to change, and whether the coming step begins a generation batch."""

    def __init__(self) -> None:
        self.told: list[dict[str, float]] = []
        self.boundary = True

    def at_boundary(self) -> bool:
        return self.boundary

    def change_settings(self, changes) -> None:
        self.told.append(dict(changes))


@pytest.fixture
def begun(tmp_path):
    """Edits of a run that has not trained, and a trainer for them."""
    events: list[Edited] = []
    reporter: Any = SimpleNamespace(event=lambda kind, **fields: events.append(kind(attempt=1, time=0.0, **fields)))
    edits = Edits(tmp_path, make_spec(tmp_path), get_task("mini_gsm"), reporter)
    return SimpleNamespace(edits=edits, trainer=Recorder(), events=events, folder=tmp_path)


def test_inside_a_generation_batch_only_what_belongs_to_a_step_changes(begun):
    ask(begun.folder, {"key": "both", "changes": {"training.learning_rate": 1e-4, "training.temperature": 0.5}})
    begun.trainer.boundary = False
    begun.edits.begin_step(2, begun.trainer)
    begun.edits.begin_step(3, begun.trainer)
    assert begun.trainer.told == [{"training.learning_rate": 1e-4}]
    begun.trainer.boundary = True
    begun.edits.begin_step(4, begun.trainer)
    begun.edits.begin_step(5, begun.trainer)
    assert begun.trainer.told == [{"training.learning_rate": 1e-4}, {"training.temperature": 0.5}]
    assert [(event.step, event.changes) for event in begun.events] == [(2, {"training.learning_rate": 1e-4}), (4, {"training.temperature": 0.5})]


def test_what_is_withdrawn_in_time_never_holds_and_what_cannot_hold_is_refused(begun):
    ask(begun.folder, {"key": "gone", "changes": {"training.learning_rate": 1e-4}}, {"key": "gone", "withdrawn": True})
    ask(begun.folder, {"key": "wrong", "changes": {"training.beta": 0.1}}, {"key": "large", "changes": {"training.temperature": 99}}, {"nonsense": 1})
    begun.edits.begin_step(1, begun.trainer)
    assert begun.trainer.told == []
    assert {event.key: event.refused.partition(":")[0] for event in begun.events} == {
        "gone": "withdrawn",
        "wrong": "training.beta = 0.1",
        "large": "training.temperature = 99.0",
    }
    ask(begun.folder, {"key": "gone", "changes": {"training.learning_rate": 1e-4}})  # a line that is there twice counts once
    begun.edits.begin_step(2, begun.trainer)
    assert begun.trainer.told == []


def test_the_bounds_are_those_of_a_launch(tmp_path):
    spec = make_spec(tmp_path, training__beta=0.1)
    settings = list_editable_settings(spec, OFFER, {})
    assert settings.refused == {}

    def problems(**changes: float) -> dict[str, str]:
        named = {name.replace("__", "."): value for name, value in changes.items()}
        return {problem.field: problem.message for problem in find_edit_problems(spec, settings, settings.launched, named)}

    assert problems(training__learning_rate=2, training__beta=-1) == {
        "training.learning_rate": "must be at most 1",
        "training.beta": "must be at least 0",
    }
    assert problems(training__max_steps=9) == {"training.max_steps": "cannot be changed while the run trains"}
    assert problems(task__rewards__unknown=1) == {"task.rewards.unknown": "cannot be changed while the run trains"}
    assert list(problems(task__mix__easy=0)) == ["task.mix.easy"]
    assert problems(task__mix__easy=0, task__mix__hard=1, task__rewards__brevity=-0.5) == {}


def test_what_a_run_cannot_take_is_not_offered_and_says_why(tmp_path):
    plain = list_editable_settings(make_spec(tmp_path), OFFER, {})
    assert list(plain.refused) == ["KL coefficient (beta)"]
    chosen = list_editable_settings(make_spec(tmp_path), OFFER, {"kimi-k15": ["curriculum"]})
    assert chosen.refused["Prompt mix"] == "kimi-k15 chooses the prompts."
    dpo = list_editable_settings(make_spec(tmp_path, "dpo"), OFFER, {})
    assert list(dpo.launched) == ["training.learning_rate", "training.beta"]
    assert set(dpo.refused) == {"Temperature", "Reward weights", "Prompt mix"}


def test_the_end_of_a_spool_tells_the_last_reported_step(tmp_path):
    path = tmp_path / SPOOL
    assert last_reported_step(path) == 0
    with SpoolWriter(path) as writer:
        for step in range(1, 4):
            writer.put(Metrics(attempt=1, time=0.0, step=step, values={f"metric {n}": float(n) for n in range(4000)}))
    with path.open("a") as file:
        file.write('{"torn')
    assert last_reported_step(path) == 3
