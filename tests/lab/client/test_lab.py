"""The client against a real lab: reading in pages, following, launching, and what happens while the lab is busy, away or cut off."""

from __future__ import annotations

import logging
import threading
import time
import types
import typing
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Dataset, Form, Row, Source, VersionState
from lab.data.datasets.models import Version as FrozenVersion
from lab.edges.api import openapi
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from policy_lab import Lab, LabError, commands, records, requests, rows
from tests.lab.cast import make_cast
from tests.lab.client.conftest import read_json_lines
from tests.lab.client.doorway import Doorway
from tests.lab.supervisor.spools import finished, make_run, measured, started, steps, store

pytestmark = pytest.mark.timeout(20, func_only=True)
SCHEMAS = {
    "Person": "Person", "Run": "RunOut", "RunDetail": "RunDetail", "Checkpoint": "CheckpointOut", "Launched": "Launched",
    "FieldProblem": "FieldProblem", "Series": "SeriesOut", "SeriesAnswer": "Metrics", "Message": "MessageOut", "Turn": "Turn",
    "Rollout": "RolloutOut", "Tokens": "TokensOut", "Queue": "QueueOut", "Label": "LabelOut", "Dataset": "DatasetOut",
    "DatasetDetail": "DatasetDetail", "Version": "VersionOut",
}  # fmt: skip


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PAUSES", (0.05, 0.1, 0.2))


def describe_kind(kind: Any) -> str:
    """A type as an OpenAPI document has it: its JSON type, and whether it may be null."""
    parts = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    [one] = [part for part in parts if part is not type(None)]
    plain = typing.get_origin(one) or one
    names = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object", datetime: "string"}
    return names.get(plain, "object") + ("?" if type(None) in parts else "")


def describe_schema(schema: dict[str, Any]) -> str:
    parts = schema.get("anyOf", [schema])
    [one] = [part for part in parts if part.get("type") != "null"]
    return one.get("type", "object") + ("?" if len(parts) > 1 else "")


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_clients_types_are_those_of_the_api(name: str) -> None:
    schema = openapi.build_openapi_document()["components"]["schemas"][SCHEMAS[name]]["properties"]
    fields = {field.name: describe_kind(field.type) for field in msgspec.structs.fields(getattr(records, name))}
    assert fields == {field: describe_schema(one) for field, one in schema.items()}


@pytest.mark.django_db(transaction=True)
def test_pages_are_read_as_they_are_needed_and_reading_goes_on_from_any_row(
    lab: Lab, doorway: Doorway, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(team)
    store(run, started(), *steps(1, 3))
    monkeypatch.setattr("policy_lab.lab.PAGE", 5)
    monkeypatch.setattr("policy_lab.lab.NAMES", 1)
    expected = list(Rollout.objects.filter(run=run).order_by("-step", "-group", "-sample").values_list("pk", flat=True))
    first = lab.rollouts(run.number)
    read = [row.id for _, row in zip(range(7), first, strict=False)]
    assert doorway.requests == 2
    store(run, *steps(4, 4))  # what arrives meanwhile moves nothing
    rest = lab.rollouts(run.number, after=first.position)
    assert read + [row.id for row in rest] == expected
    assert lab.rollouts(run.number, after=rest.position).to_dicts() == []
    points = lab.metrics(run.number, ["reward", "loss"])
    one = next(iter(points))
    assert [one, *lab.metrics(run.number, ["reward", "loss"], after=points.position)] == list(lab.metrics(str(run.pk), ["reward", "loss"]))
    assert {point.name for point in lab.metrics(run.number)} == {"loss", "reward"}
    frame = lab.rollouts(run.number, ["step:eq:4"], sort="-reward").to_pandas()
    assert (len(frame), set(frame["step"]), frame["prompt"][0]) == (8, {4}, [{"role": "user", "content": frame["prompt"][0][0]["content"]}])
    with pytest.raises(LabError, match="after must be the position"):
        lab.rollouts(after="somewhere")


@pytest.mark.django_db(transaction=True)
def test_a_run_is_followed_through_a_restart_and_from_where_it_was_left_without_doubles(lab: Lab, doorway: Doorway, team: Team) -> None:
    run = make_run(team, status=Status.RUNNING)
    store(run, started(), *steps(1, 2))
    points: list[Any] = []
    rollouts: list[int] = []

    def take(update: records.Update) -> str:
        points.extend((point.name, point.step, point.value) for point in update.points if not point.name.startswith("@"))
        rollouts.extend(rollout.id for rollout in update.rollouts)
        return update.position

    news = [
        [*steps(3, 5)],
        [started(attempt=2, from_step=4), *steps(5, 6, attempt=2)],  # a resumed attempt repeats step 5
        [measured(7, attempt=2), finished(attempt=2)],
    ]
    first = lab.stream(run.number, pause=0.01)
    position = [take(update) for _, update in zip(range(2), first, strict=False)][-1]  # metrics and one step: its reader ends there
    for update in lab.stream(run.number, position=position, pause=0.01):
        take(update)
        if news and len(rollouts) == Rollout.objects.filter(run=run).count():
            doorway.shut(seconds=0.2)
            store(run, *news.pop(0))
            if not news:
                Run.objects.same_row(run).update(status=Status.FINISHED)
    stored = set(Rollout.objects.filter(run=run).values_list("pk", flat=True))
    assert len(rollouts) == len(set(rollouts))
    assert set(Rollout.objects.filter(run=run, superseded=False).values_list("pk", flat=True)) <= set(rollouts) <= stored
    assert len(points) == len({(name, step, value) for name, step, value in points})
    assert {step for name, step, _ in points if name == "loss"} == {1, 2, 3, 4, 5, 6, 7}


@pytest.mark.django_db(transaction=True)
def test_a_busy_lab_is_asked_again_when_it_says_and_one_that_restarts_when_it_is_back(
    lab: Lab, doorway: Doorway, team: Team, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(team)
    settings.API_RATE = 60  # a bucket of sixty, one more each second
    caplog.set_level(logging.INFO, "policy_lab.requests")
    began, count = time.monotonic(), 0
    while not caplog.records:
        assert len(list(lab.runs())) == 1
        count += 1
    assert (count > 60, time.monotonic() - began > 1) == (True, True)
    assert "429" in caplog.text
    settings.API_RATE = 6000
    doorway.away = 2
    assert len(list(lab.runs())) == 1
    assert "502" in caplog.text
    doorway.shut(seconds=0.3)
    assert len(list(lab.runs())) == 1
    assert "cannot be reached" in caplog.text
    doorway.shut()
    with pytest.raises(LabError, match="cannot be reached") as away:
        Lab(doorway.url, lab.requests.client.token, patience=0.2).metric_names(1)
    assert (away.value.status, away.value.arrived) == (0, False)


@pytest.mark.django_db(transaction=True)
def test_a_launch_whose_answer_is_lost_is_one_run_that_can_be_stopped_twice_and_waited_for(lab: Lab, doorway: Doorway, team: Team) -> None:
    doorway.lost, doorway.cut = 1, 40
    launched = lab.launch("grpo", {"training": {"max_steps": 5}}, name="once", check=False)
    assert [(run.name, run.number) for run in Run.across_teams.all()] == [("once", launched.runs[0].number)]
    assert (launched.fresh, launched.runs[0].total_steps) == (False, 5)
    run = launched.runs[0]
    with pytest.raises(LabError, match="is still queued after 0 s"):
        lab.wait(run, seconds=0)
    doorway.lost, doorway.cut = 1, 0
    assert lab.stop(run).status == lab.stop(run.number).status == lab.wait(run).status == "stopped"
    spec = lab.run(run).spec
    again = lab.launch(spec=spec, name="again", check=False, key="nightly-1").runs
    assert [one.id for one in lab.launch(spec=spec, name="again", check=False, key="nightly-1").runs] == [one.id for one in again]
    with pytest.raises(LabError) as refused:
        lab.launch("grpo", {"training": {"max_steps": 0, "learning": 1}}, check=False)
    assert refused.value.status == 422
    problems = {one.field: one for one in refused.value.problems}
    assert set(problems) == {"overrides.training.max_steps", "overrides.training.learning"}
    assert all(one.message and one.fix and one.message in str(refused.value) and one.fix in str(refused.value) for one in problems.values())
    with pytest.raises(LabError, match="your team has no run #99"):
        lab.run(99)
    doorway.lost, doorway.cut = 1, 0
    count = doorway.requests
    with pytest.raises(LabError, match="cannot be reached"):  # not known to do no harm twice: said, not repeated
        lab.ask("POST", "/projects", {"name": "x"})
    assert doorway.requests == count + 1


@pytest.mark.django_db(transaction=True)
def test_labels_datasets_and_the_rows_of_a_version_are_read_also_past_a_break(lab: Lab, doorway: Doorway, team: Team, owner: User) -> None:
    cast = make_cast(team, owner, "mark")
    assert [queue.id for queue in lab.queues()] == [cast.queue.pk]
    [label] = lab.labels(cast.queue.pk)
    assert (label.id, label.item) == (cast.judgement.pk, cast.item.pk)
    assert [dataset.id for dataset in lab.datasets()] == [cast.dataset.pk]
    assert [version.id for version in lab.dataset(cast.dataset.pk).versions] == [cast.version.pk]
    assert lab.version(cast.version.pk).number == cast.version.number
    whole = list(lab.version_rows(cast.version.pk))
    for cut in (0, 300, 700):
        doorway.lost, doorway.cut = 1, cut
        assert list(lab.version_rows(lab.version(cast.version.pk))) == whole
    assert lab.tokens(cast.rollout.pk).id == lab.rollout(cast.rollout.pk).id == cast.rollout.pk
    assert lab.ask("GET", "/me")["team"]


@pytest.fixture
def dataset_folder(tmp_path: Path, settings: Any) -> None:
    settings.DATASETS_ROOT = tmp_path


@pytest.mark.django_db(transaction=True)
def test_a_dataset_tool_is_applied_and_waited_for(
    doorway: Doorway,
    lab: Lab,
    secret: str,
    team: Team,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: Any,
    tmp_path: Any,
) -> None:
    dataset = Dataset.objects.create(team=team, name="Sums", form=Form.COMPLETION, source=Source.IMPORT)
    source = FrozenVersion.objects.create(dataset=dataset, number=1, state=VersionState.READY, digest="0" * 64)
    for place, answer in enumerate(("Take 3.\nSo 3.", "Hello.")):
        row = {"prompt": [{"role": "user", "content": f"{place}?"}], "completion": [{"role": "assistant", "content": answer}]}
        Row.objects.create(version=source, place=place, split="train", row=row, digest=str(place) * 64)
    queued = lab.apply_tool(source.pk, "skyreels-v2", {"distortion": "swap"}, name="Pairs")
    assert (queued.state, queued.rule["tool"]["version"]) == ("queued", source.pk)
    with pytest.raises(LabError, match="still queued"):
        lab.wait_for_version(queued, seconds=0.1, pause=0.05)
    build_version(queued.id)
    ready = lab.wait_for_version(queued)
    assert (ready.state, ready.counts["train"]) == ("ready", 1)
    assert [row["rejected"][0]["content"] for row in lab.version_rows(ready)] == ["So 3.\nTake 3."]
    with pytest.raises(LabError, match="per_answer"):
        lab.apply_tool(source.pk, "skyreels-v2", {"per_answer": 0})

    monkeypatch.setenv("LAB_URL", doorway.url)
    monkeypatch.setenv("LAB_TOKEN", secret)
    monkeypatch.setattr(Lab, "wait_for_version", lambda self, version: (build_version(version.id), self.version(version.id))[1])
    assert commands.main(["tool", str(source.pk), "skyreels-v2", "--dataset", str(ready.dataset), "--seed", "3"]) == 0
    assert "2 rows read, 1 made for training, 0 for testing\nleft out: 1 answers with fewer than two steps" in capsys.readouterr().out
    assert commands.main(["tool", str(source.pk), "skyreels-v2", "--set", "per_answer=0"]) == 2
    assert commands.main(["tool", str(source.pk), "advchain"]) == 1
    assert "The tool made no rows" in capsys.readouterr().err


@pytest.mark.django_db(transaction=True)
def test_the_commands_list_launch_wait_stop_and_stream(
    doorway: Doorway, secret: str, team: Team, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_URL", doorway.url)
    monkeypatch.setenv("LAB_TOKEN", secret)
    assert commands.main(["launch", "grpo", "--set", "training.max_steps=5", "--set", "task.difficulty=easy", "--name", "mine", "--no-check"]) == 0
    run = Run.across_teams.get()
    assert capsys.readouterr().out.startswith(f"#{run.number}  queued")
    threading.Timer(0.3, lambda: commands.main(["stop", str(run.number)])).start()
    assert commands.main(["wait", str(run.pk)]) == 1
    assert "stopped" in capsys.readouterr().out
    assert commands.main(["runs", "--status", "ended", "--json"]) == 0
    assert [one["id"] for one in read_json_lines(capsys.readouterr().out)] == [str(run.pk)]
    other = make_run(team, status=Status.FINISHED)
    store(other, started(), *steps(1, 1), finished())
    assert commands.main(["stream", str(other.number)]) == 0
    lines = read_json_lines(capsys.readouterr().out)
    assert {line["metric"] for line in lines if "metric" in line} >= {"loss", "reward"}
    assert len({line["rollout"]["id"] for line in lines if "rollout" in line}) == 8
    assert commands.main(["stream", str(other.number), "--position", lines[-1]["position"]]) == 0
    [last] = read_json_lines(capsys.readouterr().out)
    assert (last["status"], last["position"]) == ("finished", lines[-1]["position"])
    for wrong, words in ((["--set", "x"], "FIELD=VALUE"), (["--spec", "none.json"], "none.json"), (["--set", "training.max_steps=0"], "max_steps")):
        assert commands.main(["launch", "grpo", "--no-check", *wrong]) == 2
        assert words in capsys.readouterr().err
    monkeypatch.delenv("LAB_TOKEN")
    assert commands.main(["runs"]) == 2
    assert "LAB_TOKEN" in capsys.readouterr().err


def test_frames_without_their_package_are_refused_in_words() -> None:
    with pytest.raises(LabError, match="pip install no_such_frames"):
        rows.import_frames("no_such_frames")
