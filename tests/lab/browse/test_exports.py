"""What a selection can be taken along as, and tags put on many rollouts at once."""

import csv
import io
import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from lab.lib.downloads import csv_safe
from lab.rollouts.annotations.models import Rating, RolloutTag, Tag
from lab.rollouts.browse.records import NAMES
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import alternatives, make_run, rollout, started, steps, store
from trainers.contract.events import Message, RolloutNode


@pytest.fixture
def run(team: Team) -> Run:
    made = make_run(team, name="first")
    store(made, started(), *steps(1, 3))
    return made


def exported(client: Client, form: str, query: str = "") -> bytes:
    response: Any = client.get(f"/rollouts/export/{form}/{query}")
    assert response.status_code == 200, response.content
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Disposition"].startswith('attachment; filename="rollouts-run-')
    return b"".join(response.streaming_content)


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.decode().split("\n")[:-1]]


def test_json_lines_hold_everything_in_the_selections_order(as_owner: Client, team: Team, owner: User, run: Run) -> None:
    best = rollout(
        9, 1, 3, prompt=[Message("system", "be brief"), Message("user", "1 + 1?")], reward=7.0, advantage=0.5, contributions={"base": 0.25}
    )
    store(run, best)
    newest = Rollout.across_teams.latest("pk")
    RolloutTag.objects.create(rollout=newest, tag=Tag.objects.create(team=team, name="keep"), user=owner)
    Rating.objects.create(rollout=newest, user=owner, value=3)
    found = lines(exported(as_owner, "jsonl", "?run=1&sort=-reward"))
    assert [record["id"] for record in found[1:]] == list(Rollout.across_teams.filter(reward=1.0).order_by("-pk").values_list("pk", flat=True))
    first = found[0]
    assert first["prompt"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "1 + 1?"}]
    expected = {"run": 1, "run_name": "first", "step": 9, "group": 1, "sample": 3, "reward": 7.0, "advantage": 0.5, "contributions": {"base": 0.25}}
    assert {name: first[name] for name in expected} == expected
    assert (first["tags"], first["rating"], first["rewards"]) == (["keep"], 3.0, {"correct": 1.0, "format": None})
    assert "token_ids" not in first
    assert tuple(first) == NAMES


def test_only_the_selection_is_taken_along(as_owner: Client, run: Run) -> None:
    assert {record["step"] for record in lines(exported(as_owner, "jsonl", "?f=step:ge:2"))} == {2, 3}
    assert len(lines(exported(as_owner, "jsonl", "?re=answer&f=sample:eq:0"))) == 6
    assert lines(exported(as_owner, "jsonl", "?f=reward:ge:5")) == []
    assert exported(as_owner, "csv", "?f=reward:ge:5").decode().startswith("id,run,run_name,")
    assert pq.read_table(io.BytesIO(exported(as_owner, "parquet", "?f=reward:ge:5"))).num_rows == 0


def test_token_arrays_come_on_request(as_owner: Client, run: Run) -> None:
    record = lines(exported(as_owner, "jsonl", "?f=step:eq:1&f=group:eq:0&f=sample:eq:0&tokens=1"))[0]
    assert record["token_ids"] == [1, 2, 3, 4]
    assert record["logprobs"] == [-0.5, -0.25, -1.0, 0.0]
    assert record["reference_logprobs"] is None
    table = pq.read_table(io.BytesIO(exported(as_owner, "parquet", "?tokens=1"))).to_pylist()
    assert len(table) == 24
    assert table[0]["entropies"] == [0.5, 0.25, 1.0, 0.0]
    assert (table[0]["alternative_ids"], table[0]["sampler_logprobs"]) == (None, None)


@pytest.mark.feature(42)
def test_alternatives_are_exported_with_the_token_arrays(as_owner: Client, run: Run) -> None:
    store(run, rollout(9, **alternatives()))
    [record] = lines(exported(as_owner, "jsonl", "?f=step:eq:9&tokens=1"))
    [row] = pq.read_table(io.BytesIO(exported(as_owner, "parquet", "?f=step:eq:9&tokens=1"))).to_pylist()
    assert record["alternative_ids"] == row["alternative_ids"] == [[1, 3], [1, 3], [1, 3], [1, 2]]
    assert record["alternative_logprobs"][0] == pytest.approx([-0.6931, -1.3863], abs=1e-3)
    assert record["alternative_texts"] == row["alternative_texts"] == [{"id": 1, "text": "the"}, {"id": 2, "text": "\n"}, {"id": 3, "text": "a"}]
    assert (record["token_ranks"], record["sampler_logprobs"]) == ([1, 2, 5, 5], [-0.75] * 4)


def test_parquet_holds_what_json_lines_hold(as_owner: Client, run: Run) -> None:
    store(run, *(rollout(5, 0, number, completion=stored(payload), rewards={"nan": float("nan")}) for number, payload in enumerate(PAYLOADS)))
    table = pq.read_table(io.BytesIO(exported(as_owner, "parquet"))).to_pylist()
    plain = lines(exported(as_owner, "jsonl"))
    same = ("id", "run", "run_name", "phase", "step", "group", "sample", "prompt", "completion", "reward", "length", "tags", "created_at", "turns")
    assert [{name: row[name] for name in same} for row in table] == [{name: row[name] for name in same} for row in plain]
    assert {pair["name"] for pair in table[-1]["rewards"]} == {"correct", "format"}


def test_the_turns_of_an_episode_are_exported_as_nodes(as_owner: Client, run: Run) -> None:
    nodes = [RolloutNode(0, "prompt"), RolloutNode(1, "policy", 0, fate="cut", text="=1", facts={"evidence": [3]})]
    store(run, rollout(9, nodes=nodes))
    [record] = lines(exported(as_owner, "jsonl", "?f=step:eq:9"))
    expected = [{"number": 0, "by": "prompt"}, {"number": 1, "by": "policy", "parent": 0, "fate": "cut", "text": "=1", "facts": {"evidence": [3]}}]
    assert record["nodes"] == expected
    [row] = pq.read_table(io.BytesIO(exported(as_owner, "parquet", "?f=step:eq:9"))).to_pylist()
    assert json.loads(row["nodes"]) == expected
    [cells] = csv.DictReader(io.StringIO(exported(as_owner, "csv", "?f=step:eq:9").decode(), newline=""))
    assert json.loads(cells["nodes"]) == expected


def test_no_cell_of_a_csv_is_a_formula(as_owner: Client, team: Team) -> None:
    run = make_run(team, name="=run")
    texts = [stored(payload) for payload in PAYLOADS]
    store(run, started())
    for at, text in enumerate(texts):
        store(run, rollout(1, 0, at, completion=text, rewards={text or "r": -1.5}, filtered=text[:50], prompt=[Message("user", text)]))
    body = exported(as_owner, "csv").decode()
    rows = list(csv.reader(io.StringIO(body, newline="")))
    assert len(rows) == len(texts) + 1
    for row in rows:
        for cell in row:
            if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
                float(cell)  # a number, which no spreadsheet runs
    at = rows[0].index("completion")
    assert {row[at] for row in rows[1:]} == {csv_safe(text) for text in texts}


def test_a_file_that_would_be_too_large_is_refused_with_a_way_on(as_owner: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.rollouts.browse.actions.MOST", 10)
    response = as_owner.get("/rollouts/export/jsonl/?run=1&sort=-reward")
    body = response.content.decode()
    assert response.status_code == 400
    assert "more than 10 rollouts" in body
    assert "/rollouts/export/jsonl/?run=1&amp;sort=-reward&amp;first=1" in body
    assert len(lines(exported(as_owner, "jsonl", "?run=1&sort=-reward&first=1"))) == 10


def test_an_unknown_format_is_not_found(as_owner: Client, run: Run) -> None:
    assert as_owner.get("/rollouts/export/xlsx/").status_code == 404


def test_an_export_asks_by_batches(as_owner: Client, team: Team, run: Run) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            exported(as_owner, "jsonl")
        return len(queries)

    few = asked()
    store(run, *steps(4, 30))
    assert asked() <= few


def test_only_the_ticked_rollouts_are_taken_along(as_owner: Client, run: Run) -> None:
    ids = list(Rollout.across_teams.values_list("pk", flat=True)[3:6])
    query = "&".join(f"id={pk}" for pk in [ids[2], ids[0], "x", 2**63, 0, ids[2]])
    assert [record["id"] for record in lines(exported(as_owner, "jsonl", f"?f=step:eq:99&{query}"))] == [ids[2], ids[0]]


def test_another_teams_rollouts_are_not_taken_along(as_stranger: Client, run: Run) -> None:
    assert lines(exported(as_stranger, "jsonl", "?run=1")) == []
    assert lines(exported(as_stranger, "jsonl", f"?id={Rollout.across_teams.latest('pk').pk}")) == []


def send(client: Client, **data: Any) -> str:
    response = client.post("/rollouts/tag/", data, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def test_ticked_rollouts_are_tagged_and_what_had_it_is_said(as_owner: Client, team: Team, run: Run) -> None:
    ids = list(Rollout.across_teams.values_list("pk", flat=True)[:3])
    body = send(as_owner, tag=" Loop ", id=ids[:2], query="?run=1&sort=-reward")
    assert "Tagged 2 rollouts “Loop”." in body
    assert "1 already had it" not in body
    assert "1 already had it" in send(as_owner, tag="loop", id=ids[1:], query="")
    assert sorted(RolloutTag.across_teams.values_list("rollout_id", "tag__name")) == [(pk, "Loop") for pk in sorted(ids)]
    assert "Removed “loop” from 1 of 1 rollout." in send(as_owner, tag="loop", id=ids[:1], act="remove")
    assert RolloutTag.across_teams.count() == 2


def test_tagging_many_is_undone_and_leaves_what_was_tagged_before(as_owner: Client, run: Run) -> None:
    first = Rollout.across_teams.earliest("pk").pk
    send(as_owner, tag="loop", id=[first])
    body = send(as_owner, tag="loop", scope="all", query="?f=step:le:2")
    assert "“<bdi>loop</bdi>” is on 15 more rollouts." in body
    assert "more rollouts." not in as_owner.get("/rollouts/").content.decode()  # offered once
    response = as_owner.post("/rollouts/tag/undo/", {"query": "?f=step:le:2"}, follow=True)
    assert response.redirect_chain[0][0] == "/rollouts/?f=step%3Ale%3A2"
    assert "Undone: removed “loop” from 15 rollouts." in response.content.decode()
    assert list(RolloutTag.across_teams.values_list("rollout_id", flat=True)) == [first]
    assert "Nothing left to undo" in as_owner.post("/rollouts/tag/undo/", follow=True).content.decode()


def test_a_whole_selection_is_tagged(as_owner: Client, run: Run) -> None:
    assert "Tagged 8 rollouts" in send(as_owner, tag="two", scope="all", query="?f=step:eq:2&after=W10")
    assert set(RolloutTag.across_teams.values_list("rollout__step", flat=True)) == {2}
    assert "Tagged 24 rollouts" in send(as_owner, tag="pattern", scope="all", query="?re=answer")


def test_tagging_says_what_is_missing_and_keeps_the_address(as_owner: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    key = Rollout.across_teams.latest("pk").pk
    assert "Type a tag first" in send(as_owner, tag=" ", id=[key])
    assert "at most 50 characters" in send(as_owner, tag="x" * 51, id=[key])
    assert "No rollouts selected" in send(as_owner, tag="x")
    assert "No rollouts selected" in send(as_owner, tag="x", id=["0", "-1", "9" * 30, "x"])
    monkeypatch.setattr("lab.rollouts.browse.actions.MOST_TAGGED", 5)
    assert "more than 5 rollouts" in send(as_owner, tag="x", scope="all")
    assert not RolloutTag.across_teams.exists()
    response = as_owner.post("/rollouts/tag/", {"tag": "", "query": "?run=1&f=step%3Aeq%3A2"})
    assert response.headers["Location"] == "/rollouts/?run=1&f=step%3Aeq%3A2"


def test_another_teams_rollouts_are_not_tagged(as_stranger: Client, run: Run) -> None:
    assert "No rollouts selected" in send(as_stranger, tag="x", id=[Rollout.across_teams.latest("pk").pk])
    assert "No rollouts selected" in send(as_stranger, tag="x", scope="all", query="?run=1")
    assert not RolloutTag.across_teams.exists()
