"""Step pairs of worlds: both sides become the episode up to their turn, as the policy has seen and written it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.conftest import current, events_in, make_spec
from trainers.attempt import train
from trainers.contract.events import Metrics
from trainers.data.episode_rows import join_episode_row, join_episode_rows

USER = {"role": "user", "content": "Who?"}
SAID = [{"role": "assistant", "content": "<search>Eva</search>"}, {"role": "tool", "content": "<information>Lumo</information>"}]


def pair(prompt: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    sides = {
        "chosen": [{"role": "assistant", "content": "<search>Lumo</search>"}],
        "rejected": [{"role": "assistant", "content": "<answer>Mia</answer>"}],
    }
    return {"prompt": prompt, **sides, **more}


def test_what_was_said_before_goes_in_front_of_both_sides() -> None:
    row = join_episode_row(pair([USER, *SAID], weight=0.5))
    begun = "<search>Eva</search><information>Lumo</information>"
    assert row["prompt"] == [USER]
    assert row["chosen"] == [{"role": "assistant", "content": f"{begun}<search>Lumo</search>"}]
    assert row["rejected"] == [{"role": "assistant", "content": f"{begun}<answer>Mia</answer>"}]
    assert row["weight"] == 0.5


@pytest.mark.parametrize(
    "row",
    [
        pair([USER]),
        pair([USER, SAID[0], {"role": "tool", "content": "x"}, USER]),
        pair([USER, *SAID], chosen_spans=[{"start": 0, "end": 2, "label": "good", "text": "<s"}]),
        {"prompt": [USER, *SAID], "completion": [SAID[0]]},
        pair(SAID),
    ],
)
def test_other_rows_stay_as_they_are(row: dict[str, Any]) -> None:
    assert join_episode_rows([row]) == [row]


@pytest.mark.training
def test_two_steps_of_dpo_train_on_step_pairs(tmp_path: Path) -> None:
    """The sides begin alike, so that before the first step neither has moved: the loss is log 2, and then it falls."""
    file = tmp_path / "steps.jsonl"
    rows = [pair([{"role": "user", "content": f"Who is {number}?"}, *SAID]) for number in range(8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    training = {"training__max_steps": 2, "training__warmup_steps": 0, "training__learning_rate": 1e-3}
    about = {"task": {"name": "search", "difficulty": "easy"}, "policy": {"kind": "tiny", "cold_start": False}, "dataset": {"path": str(file)}}
    assert train.run_training(make_spec(tmp_path / "run", "dpo", **about, **training), tmp_path / "run") == train.FINISHED
    losses = [event.values["loss"] for event in current(events_in(tmp_path / "run"), Metrics) if "loss" in event.values]
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)
    assert losses[1] < losses[0]
