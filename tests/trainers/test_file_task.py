"""A task made in the browser is a file: its rows keep their splits, its hash is checked, and it is trained on like a task that is code."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from trainers.checks.preflight import run_preflight_checks
from trainers.contract.problems import SpecError
from trainers.contract.spec import RunSpec, TaskChoice, parse_spec
from trainers.data.fetched_rows import fetch_rows, open_hub_dataset
from trainers.tasks.file_task import FileTask
from trainers.tasks.registry import load_chosen_task

ACCURACY = {"name": "accuracy", "definition": {"kind": "library", "function": "exact-match"}}
LONG = {"trainer": "grpo", "max_steps": 140, "per_device_train_batch_size": 4, "num_generations": 4, "prompts": 4000}
DEFINITION = {
    "version": 1,
    "name": "Sums",
    "system": "Answer with a number.",
    "examples": [{"user": "1+1?", "assistant": "2"}],
    "rewards": [ACCURACY],
}


def write_task(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """``task`` of a spec."""
    definition = DEFINITION | changes
    path = folder / "sums.task.jsonl"
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in (definition, *rows)))
    return {"name": definition["name"], "file": {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}


def sums(count: int = 40, **more: Any) -> list[dict[str, Any]]:
    splits = ["heldout" if number % 8 == 0 else "train" for number in range(count)]
    return [{"prompt": f"{number}+{number}?", "reference": str(2 * number), "split": split, **more} for number, split in enumerate(splits)]


def load(choice: dict[str, Any]) -> FileTask:
    task = load_chosen_task(TaskChoice.model_validate(choice))
    assert isinstance(task, FileTask)
    return task


def asked(task: FileTask, split: Any, count: int, seed: int = 0) -> list[str]:
    return [example.prompt[-1].content for example in task.examples(split, count, seed, "all")]


def make_spec(folder: Path, choice: dict[str, Any], **changes: Any) -> RunSpec:
    training = {"trainer": "grpo", "max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 4, "prompts": 8}
    given = {"policy": {"kind": "tiny", "cold_start": False}, "task": choice, "training": training, "output": str(folder / "run")}
    return parse_spec(given | changes)


def test_rows_keep_their_splits_and_come_in_an_order_of_the_seed(tmp_path: Path) -> None:
    task = load(write_task(tmp_path, sums()))
    heldout = asked(task, "heldout", 100)
    assert sorted(heldout) == sorted(f"{number}+{number}?" for number in range(0, 40, 8))  # each once, however many are asked for
    assert asked(task, "heldout", 3, seed=7) == heldout[:3]
    train = asked(task, "train", 35)
    assert set(train) == {row["prompt"] for row in sums() if row["split"] == "train"}
    assert asked(task, "train", 35) == train != asked(task, "train", 35, seed=1)
    again = asked(task, "train", 80)  # two times round, and some more
    assert again[:35] == train
    assert set(again[35:70]) == set(train)
    assert asked(task, "pairs", 100, seed=3) != train[:35]
    assert set(asked(task, "pairs", 100)) == set(train)  # no rows of its own: those of training
    own = load(write_task(tmp_path, [*sums(), {"prompt": "own?", "split": "pairs"}], name="With pairs"))
    assert asked(own, "pairs", 100) == ["own?"]
    with pytest.raises(ValueError, match="no difficulty 'easy'"):
        task.examples("train", 1, 0, "easy")


def test_a_prompt_has_the_system_prompt_and_the_examples_before_it(tmp_path: Path) -> None:
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    task = load(write_task(tmp_path, [{"prompt": "1+2?", "data": {"level": 3}}, {"prompt": conversation}]))
    found = {example.prompt[-1].content: example for example in task.examples("train", 2, 0, "all")}
    turns = [(message.role, message.content) for message in found["1+2?"].prompt]
    assert turns == [("system", "Answer with a number."), ("user", "1+1?"), ("assistant", "2"), ("user", "1+2?")]
    assert found["1+2?"].data == {"level": 3}
    assert [message.content for message in found["2+2?"].prompt] == ["Be brief.", "1+1?", "2", "2+2?"]  # a row's own system message wins


def test_gold_is_the_demonstration_or_a_reference_that_gets_the_full_reward(tmp_path: Path) -> None:
    task = load(write_task(tmp_path, [{"prompt": "a", "reference": "1"}, {"prompt": "b", "reference": "2", "demonstration": "It is 2."}]))
    golds = {example.prompt[-1].content: task.gold(example) for example in task.examples("train", 2, 0, "all")}
    assert golds == {"a": "1", "b": "It is 2."}
    assert [example.prompt[-1].content for example in task.draw_demonstrations(3, 0, "all")] == ["b", "b", "b"]  # written ones before references
    tags = {"name": "form", "definition": {"kind": "library", "function": "tags"}}
    none = load(write_task(tmp_path, sums(), rewards=[ACCURACY, tags]))
    with pytest.raises(LookupError, match="no demonstration"):
        none.gold(none.examples("train", 1, 0, "all")[0])
    with pytest.raises(LookupError, match="no row of task 'Sums' has a demonstration"):
        none.draw_demonstrations(1, 0, "all")


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (lambda choice, path: path.write_bytes(path.read_bytes() + b'{"prompt": "more?"}\n'), "task.file.sha256", "has changed"),
        (lambda choice, path: path.unlink(), "task.file.path", "there is no file"),
        (lambda choice, path: choice.update(name="Other"), "task.name", "the file holds the task Sums"),
        (lambda choice, path: path.write_bytes(b"\x00\xff"), "task.file.path", "line 1 is not a definition"),
        (lambda choice, path: path.write_bytes(json.dumps(DEFINITION).encode() + b'\n{"prompt": 3}\n'), "task.file.path", "line 2 is not a row"),
        (lambda choice, path: path.write_bytes(b"[" * 200_000), "task.file.path", "line 1 is not a definition"),
    ],
)
def test_another_file_than_the_spec_means_is_refused(tmp_path: Path, change: Any, field: str, message: str) -> None:
    choice = write_task(tmp_path, sums())
    change(choice, Path(choice["file"]["path"]))
    report = run_preflight_checks(make_spec(tmp_path, choice))
    assert [(problem.field, message in problem.message) for problem in report.problems] == [(field, True)]


def test_the_preflight_looks_at_the_file_as_at_any_task(tmp_path: Path) -> None:
    report = run_preflight_checks(make_spec(tmp_path, write_task(tmp_path, sums())))
    assert report.ok, report.problems
    assert [(run.kind, run.reward) for run in report.gold[:2]] == [("gold", 1.0), ("empty", 0.0)]
    assert report.samples[0].prompt[0] == {"role": "system", "content": "Answer with a number."}
    more = run_preflight_checks(make_spec(tmp_path, write_task(tmp_path, sums()), training=LONG, evaluation={"prompts": 256, "every": 0}))
    assert (more.batch["prompts"], more.batch["epochs"], more.batch["heldout_rollouts"]) == (35, 4.0, 10)  # 35 rows and 5, whatever is asked for
    only_train = [{**row, "split": "train"} for row in sums()]
    report = run_preflight_checks(make_spec(tmp_path, write_task(tmp_path, only_train)))
    assert "no held-out rows" in {warning.field: warning.message for warning in report.warnings}["evaluation.prompts"]
    length = {"name": "long", "definition": {"kind": "library", "function": "tags"}}
    nothing = write_task(tmp_path, sums(), rewards=[length])
    assert [run.kind for run in run_preflight_checks(make_spec(tmp_path, nothing)).gold[:2]] == ["reference", "empty"]
    cold = run_preflight_checks(make_spec(tmp_path, nothing, policy={"kind": "tiny"}))
    assert [problem.field for problem in cold.problems] == ["policy.cold_start"]
    sft = run_preflight_checks(make_spec(tmp_path, nothing, training={"trainer": "sft", "max_steps": 1}))
    assert [problem.field for problem in sft.problems] == ["task.name"]


def test_rows_of_the_hub_are_read_as_data_and_kept_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainers.data import fetched_rows

    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps({"question": f"{number}?", "answer": str(number)}) + "\n" for number in range(30)))
    rows, about = open_hub_dataset({"name": "owner/set"}, folder)
    assert [*rows][:2] == [{"question": "0?", "answer": "0"}, {"question": "1?", "answer": "1"}]
    assert about == {}
    monkeypatch.setattr(fetched_rows, "open_hub_dataset", lambda settings: open_hub_dataset(settings, folder))
    said: list[dict[str, Any]] = []
    request = {"kind": "hub", "settings": {"name": "owner/set"}, "file": str(tmp_path / "rows"), "rows": 7, "bytes": 1000}
    fetch_rows(request, said.append)
    assert said == [{"rows": 7, "about": {}}]
    assert (tmp_path / "rows").read_text().count("\n") == 7
    with pytest.raises(SpecError, match="MB"):
        fetch_rows(request | {"file": str(tmp_path / "large"), "rows": 30, "bytes": 100}, said.append)


def test_what_cannot_be_fetched_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    request = {"kind": "hub", "settings": {"name": "owner/none"}, "file": str(tmp_path / "rows"), "rows": 7, "bytes": 1000}
    with pytest.raises(SpecError) as refused:
        fetch_rows(request, lambda line: None)
    assert [problem.field for problem in refused.value.problems] == ["hub"]
    gym = request | {"kind": "gym", "settings": {"name": "leg_counting", "size": 5}}
    with pytest.raises(SpecError, match="reasoning-gym is not installed on this worker"):
        fetch_rows(gym, lambda line: None)
