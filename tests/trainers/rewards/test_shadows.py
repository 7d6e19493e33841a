"""Shadow rewards: the scores that the trainer would have given, in no gradient, never waited for, promoted by an edit and kept after a resume."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.rewards.scoring import code, library, make_example
from tests.trainers.test_edits import train_with
from tests.trainers.test_resume import learned
from trainers.attempt import shadows, train
from trainers.attempt.telemetry import Scored
from trainers.contract.edits import TaskOffer, list_editable_settings
from trainers.contract.events import Edited, Metrics, Rollout, ShadowRewards, Warned
from trainers.contract.reward_definitions import RewardColumn
from trainers.rewards.line_child import LineChild

pytestmark = [pytest.mark.training]

PYTHON = "def score(completion, reference, data):\n    return len(completion) / 10 + data['start'] / 7"
COLUMN = {"name": "odd", "definition": {"kind": "sum", "parts": [{"reward": code(PYTHON)}, {"reward": library("regex", pattern="7"), "weight": 0.3}]}}
STEPS = 4
GRPO = {"training__max_steps": STEPS, "limits": {"save_every": 1, "keep_checkpoints": 5}}
PROMOTED = {"key": "promote", "changes": {"task.rewards.odd": 0.5}}


def shadow_scores(folder: Any, attempt: int = 1) -> dict[tuple[int, int, int], float | None]:
    found = [event for event in events_in(folder) if isinstance(event, ShadowRewards) and event.attempt == attempt]
    return {(event.step, group, sample): score for event in found for group, sample, score in event.scores}


def inline_scores(folder: Any, attempt: int = 1) -> dict[tuple[int, int, int], Any]:
    found = [event for event in events_in(folder) if isinstance(event, Rollout) and event.attempt == attempt]
    return {(event.step, event.group, event.sample): event.rewards["odd"] for event in found if "odd" in event.rewards}


def without_seconds(steps: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    return {step: {name: value for name, value in values.items() if not name.endswith("/seconds")} for step, values in steps.items()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same run with the column as a shadow, with it inline and weightless, and with the shadow promoted after step 2."""
    found = {name: tmp_path_factory.mktemp(name) for name in ("shadow", "inline", "promoted")}
    columns = {"shadow": [{**COLUMN, "shadow": True}], "inline": [{**COLUMN, "weight": 0.0}], "promoted": [{**COLUMN, "shadow": True}]}
    for name, folder in found.items():
        asked = {2: PROMOTED} if name == "promoted" else {}
        assert train_with(make_spec(folder, rewards=columns[name], **GRPO), folder, asked) == train.FINISHED
    return found


@pytest.mark.feature(95)
def test_a_shadow_scores_exactly_what_the_trainer_would(runs):
    assert inline_scores(runs["shadow"]) == {}
    scores = shadow_scores(runs["shadow"])
    assert len(scores) == STEPS * 8
    assert scores == inline_scores(runs["inline"])
    assert len(set(scores.values())) > 3


def test_a_shadow_changes_nothing_that_is_trained(runs):
    plain = {step: {name: value for name, value in values.items() if "/odd/" not in name} for step, values in learned(runs["inline"]).items()}
    assert learned(runs["shadow"]) == plain
    for event in events_in(runs["shadow"]):
        if isinstance(event, Rollout):
            assert event.reward == event.rewards["correct"]


def test_its_means_are_charted_under_a_name_of_its_own(runs):
    inline = {event.step: event.values for event in events_in(runs["inline"]) if isinstance(event, Metrics) and "loss" in event.values}
    shadow = {event.step: event.values for event in events_in(runs["shadow"]) if isinstance(event, ShadowRewards)}
    assert list(shadow) == list(range(1, STEPS + 1))
    for step, values in shadow.items():
        assert values["rewards/odd (shadow)/mean"] == pytest.approx(inline[step]["rewards/odd/mean"], abs=1e-6)
        assert values["rewards/odd (shadow)/errors"] == values["rewards/odd (shadow)/dropped"] == 0
    for event in events_in(runs["shadow"]):
        if isinstance(event, Metrics):
            assert not any("odd" in name for name in event.values)


def test_a_rollout_is_reported_before_its_shadow_s_score(runs):
    seen = set()
    for event in events_in(runs["shadow"]):
        if isinstance(event, Rollout):
            seen.add((event.step, event.group, event.sample))
        if isinstance(event, ShadowRewards):
            assert {(event.step, group, sample) for group, sample, _ in event.scores} <= seen


@pytest.mark.feature(95)
def test_a_promoted_shadow_is_a_reward_from_its_step_on(runs):
    folder = runs["promoted"]
    [edited] = [event for event in events_in(folder) if isinstance(event, Edited)]
    assert (edited.step, edited.changes, edited.before) == (3, {"task.rewards.odd": 0.5}, {"task.rewards.odd": 0.0})
    plain, changed = learned(runs["shadow"]), learned(folder)
    assert {step: changed[step] for step in (1, 2)} == {step: plain[step] for step in (1, 2)}
    assert changed[3] != plain[3]
    assert {step for step, _, _ in shadow_scores(folder)} == {1, 2}
    assert {step for step, _, _ in inline_scores(folder)} == {3, 4}
    own = inline_scores(runs["inline"])
    assert all(score == own[place] for place, score in inline_scores(folder).items() if place[0] == 3)
    for event in events_in(folder):
        if isinstance(event, Rollout) and event.step >= 3:
            assert event.reward == pytest.approx(event.rewards["correct"] + 0.5 * event.rewards["odd"])


def test_a_resumed_run_keeps_what_was_promoted(runs, tmp_path):
    spec = make_spec(tmp_path, rewards=[{**COLUMN, "shadow": True}], **GRPO)
    assert train_with(spec, tmp_path, {2: PROMOTED}, crash=3) == train.FAILED
    assert train.run_training(spec, tmp_path) == train.FINISHED
    assert {step for step, _, _ in inline_scores(tmp_path, 2)} == {3, 4}
    assert shadow_scores(tmp_path, 2) == {}
    assert without_seconds(learned(tmp_path)) == without_seconds(learned(runs["promoted"]))


def test_people_s_ranking_stays_the_last_column_when_a_shadow_is_promoted(tmp_path):
    human = {"share": 0.001, "seconds": 1, "fallback": 0.25, "weight": 2.0}
    spec = make_spec(tmp_path, rewards=[{**COLUMN, "shadow": True}], human=human, training__max_steps=2)
    assert train_with(spec, tmp_path, {1: PROMOTED}) == train.FINISHED
    later = [event for event in events_in(tmp_path) if isinstance(event, Rollout) and event.step == 2]
    assert later
    for event in later:
        assert list(event.rewards)[-2:] == ["odd", "human"]
        assert event.reward == pytest.approx(event.rewards["correct"] + 0.5 * event.rewards["odd"] + 0.5)


def test_an_edit_can_name_a_shadow(tmp_path):
    spec = make_spec(tmp_path, rewards=[{**COLUMN, "shadow": True}, {**COLUMN, "name": "even", "weight": 0.25}])
    launched = list_editable_settings(spec, TaskOffer({"correct": 1.0}, ["easy"]), {}).launched
    assert (launched["task.rewards.odd"], launched["task.rewards.even"]) == (0.0, 0.25)


class Listener:
    """What a reporter is told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def event(self, kind: Any, **fields: Any) -> None:
        self.events.append(kind(attempt=1, time=0.0, **fields))

    def phase(self, *progress: Any) -> None: ...


def make_rows(step: int) -> list[tuple[Scored, Any]]:
    scored = Scored(step=step, phase="train", group=0, sample=0, prompt=[], text="7", rewards={}, reward=None, finish_reason="stop", ids=[1])
    return [(scored, make_example("7"))]


def test_what_the_child_cannot_keep_up_with_is_dropped_counted_and_said(tmp_path, monkeypatch):
    listener = Listener()
    attempt: Any = SimpleNamespace(reporter=listener, folder=tmp_path, spec=SimpleNamespace(device="cpu"))
    watched = shadows.Shadows([RewardColumn.model_validate({**COLUMN, "shadow": True})], attempt)
    watched.child = LineChild("tests.trainers.rewards.hanging_child")
    monkeypatch.setattr(shadows, "DRAIN_SECONDS", 0.5)
    began = time.monotonic()
    for step in range(20):
        watched.offer(make_rows(step))
    assert time.monotonic() - began < 1  # no step waits
    assert watched.dropped >= 20 - shadows.WAITING - 1
    thread = watched.thread
    watched.close()
    assert thread is not None
    assert not thread.is_alive()
    told = [event.message for event in listener.events if isinstance(event, Warned)]
    assert "cannot keep up" in told[0]
    assert "left out" in told[1]
    assert watched.child.process is None


def test_a_shadow_that_cannot_be_scored_is_given_up_and_costs_training_nothing(tmp_path):
    broken = {"name": "own", "definition": code("def score(completion, reference, data):\n    return data['nothing']"), "shadow": True}
    spec = make_spec(tmp_path, rewards=[broken, {**COLUMN, "shadow": True}], training__max_steps=2)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    told = [event.message for event in events_in(tmp_path) if isinstance(event, Warned)]
    assert sum("'own' failed on a completion" in message and "KeyError" in message for message in told) == 1
    values = [event for event in events_in(tmp_path) if isinstance(event, ShadowRewards)]
    assert {event.name for event in values} == {"own (shadow)", "odd (shadow)"}
    assert all(score is None for event in values if event.name.startswith("own") for _, _, score in event.scores)
