"""Reward functions of a spec: one task object has them beside the task's own, and everything that scores uses it."""

import json

import pytest

from tests.trainers.conftest import events_in, make_spec
from tests.trainers.rewards.scoring import library
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.events import Metrics, Rollout, Warned
from trainers.contract.problems import SpecError
from trainers.judges.rewards import RewardFailed, score_rows, weights_of
from trainers.rewards.columns import compose_task
from trainers.rewards.scores import Score
from trainers.tasks.registry import get_task

SEVEN = {"name": "seven", "definition": library("regex", pattern="7"), "weight": 0.5}
NUMBER = {"name": "number", "definition": library("number", answer="answer-tag"), "weight": 0.0}
SCHEMA = {"name": "shape", "definition": library("json-schema", from_data="shape"), "weight": 2.0}  # no row has one
COLUMNS = [SEVEN, NUMBER, SCHEMA]


def test_a_composed_task_has_the_columns_last_and_leaves_the_task_as_it_was(tmp_path):
    task = get_task("mini_gsm")
    own = list(task.rewards)
    spec = make_spec(tmp_path, rewards=COLUMNS, task={"name": "mini_gsm", "rewards": {"seven": 3.0}})
    composed = compose_task(task, spec)
    assert list(composed.rewards) == [*own, "seven", "number", "shape"]
    assert list(task.rewards) == own
    assert type(composed) is type(task)
    weights = weights_of(composed, spec)
    assert [weights[name] for name in ("seven", "number", "shape")] == [3.0, 0.0, 2.0]


def test_a_column_sees_the_whole_batch_at_once(tmp_path, monkeypatch):
    composed = compose_task(get_task("mini_gsm"), make_spec(tmp_path, rewards=COLUMNS))
    examples = composed.examples("train", 3, 0, "easy")
    batches: list[int] = []
    scorer = composed.rewards["seven"].scorer
    score_batch = scorer.score_batch
    monkeypatch.setattr(scorer, "score_batch", lambda rows: batches.append(len(rows)) or score_batch(rows))
    scores = score_rows(composed, [(composed.gold(example), example) for example in examples])
    assert batches == [3]
    assert [row["number"] for row in scores] == [1.0, 1.0, 1.0]
    assert [row["shape"] for row in scores] == [None, None, None]


def test_people_s_python_that_fails_on_every_completion_stops_the_run(tmp_path, monkeypatch):
    composed = compose_task(get_task("mini_gsm"), make_spec(tmp_path, rewards=[SEVEN]))
    rows = [("a", example) for example in composed.examples("train", 2, 0, "easy")]
    broken = Score(None, "NameError: name 'x' is not defined", broken=True)
    monkeypatch.setattr(composed.rewards["seven"].scorer, "score_batch", lambda rows: [broken, broken])
    with pytest.raises(RewardFailed, match="'seven' failed on all of 2 completions: NameError: name 'x'"):
        score_rows(composed, rows)
    monkeypatch.setattr(composed.rewards["seven"].scorer, "score_batch", lambda rows: [broken, Score(1.0)])
    assert [row["seven"] for row in score_rows(composed, rows)] == [None, 1.0]


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ({"name": "working", "definition": SEVEN["definition"]}, "rewards.0.name"),
        ({"name": "human", "definition": SEVEN["definition"]}, "rewards.0.name"),
        ({"name": "new", "definition": library("regex", pattern="(")}, "rewards.0.definition.config.pattern"),
        ({"name": "new", "definition": library("regexp")}, "rewards.0.definition.function"),
        ({"name": "new", "definition": library("length", unit="tokens", tokenizer="/nowhere")}, "rewards.0.definition.config.tokenizer"),
    ],
)
def test_preflight_names_the_field_that_is_wrong(tmp_path, column, field):
    report = run_preflight_checks(make_spec(tmp_path, rewards=[column]))
    assert [problem.field for problem in report.problems] == [field]
    if "/nowhere" not in json.dumps(column):
        with pytest.raises(SpecError):
            compose_task(get_task("mini_gsm"), make_spec(tmp_path, rewards=[column]))


def test_preflight_scores_known_answers_with_the_columns_too(tmp_path):
    report = run_preflight_checks(make_spec(tmp_path, rewards=COLUMNS))
    assert report.problems == []
    gold = next(run for run in report.gold if run.kind == "gold")
    wrong = next(run for run in report.gold if run.kind == "wrong")
    assert gold.rewards["number"] == 1.0
    assert wrong.rewards["number"] == 0.0
    assert gold.rewards["shape"] is None
    assert "no schema under shape" in next(warning.message for warning in report.warnings if warning.field == "rewards.2.definition")


def test_a_shadow_needs_grpo_and_has_no_weight(tmp_path):
    shadow = {**SEVEN, "shadow": True}
    report = run_preflight_checks(make_spec(tmp_path, "dpo", rewards=[shadow]))
    assert [problem.field for problem in report.problems] == ["rewards.0.shadow"]
    report = run_preflight_checks(make_spec(tmp_path, rewards=[shadow], task={"name": "mini_gsm", "rewards": {"seven": 1.0}}))
    assert [problem.field for problem in report.problems] == ["task.rewards.seven"]


@pytest.mark.feature(13)
@pytest.mark.training
def test_grpo_trains_on_the_columns_and_says_what_they_cost_and_miss(tmp_path, written_answers):
    from trainers.attempt import train

    spec = make_spec(tmp_path, rewards=COLUMNS, training__max_steps=2, evaluation={"every": 0, "prompts": 4})
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    rollouts = [event for event in events if isinstance(event, Rollout)]
    assert {event.phase for event in rollouts} == {"train", "heldout"}
    for event in rollouts:
        assert event.rewards["seven"] == float("7" in event.completion)
        assert event.rewards["shape"] is None
        assert event.reward == pytest.approx(event.rewards["correct"] + 0.5 * event.rewards["seven"])
    steps = [event.values for event in events if isinstance(event, Metrics) and "loss" in event.values]
    assert [values["rewards/shape/errors"] for values in steps] == [8.0, 8.0]
    assert [values["rewards/seven/errors"] for values in steps] == [0.0, 0.0]
    assert all(values["rewards/seven/seconds"] > 0 for values in steps)
    assert not any(name.startswith("rewards/correct/e") for name in steps[0])
    told = [event.message for event in events if isinstance(event, Warned)]
    assert sum("'shape' failed on" in message for message in told) == 1


@pytest.mark.training
def test_dpo_s_own_pairs_are_scored_with_the_columns(tmp_path):
    from trainers.attempt import train

    spec = make_spec(tmp_path, "dpo", rewards=[SEVEN], training__max_steps=1, training__sampled_prompts=8)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    [pair] = [json.loads(line)["pairs"] for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert pair
    sampled = [event for event in events_in(tmp_path) if isinstance(event, Rollout) and event.phase == "sampled"]
    assert sampled
    assert all(event.rewards["seven"] == float("7" in event.completion) for event in sampled)
    for row in pair:  # the best of the answers against the worst
        own = [event for event in sampled if event.prompt[0].content == row["prompt"][0]["content"] and event.completion]
        rewards = {event.completion: event.reward for event in own}
        assert rewards[row["chosen"][0]["content"]] == max(rewards.values()) > min(rewards.values())
        assert rewards[row["rejected"][0]["content"]] == min(rewards.values())
