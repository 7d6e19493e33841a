"""Exports are what TRL's formats say, in JSON lines and Parquet, and what was frozen."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.test import Client

from lab.data.datasets.freezing import build_version, freeze_next_version
from lab.data.datasets.models import Version
from lab.data.datasets.rules import Cleaning, DatasetRule
from lab.teams.accounts.models import Team, User
from tests.lab.datasets.labelled import dataset_of, groups_of, judge_all, queue_of, run_with
from trainers.data.datasets import read_rows


@pytest.fixture
def version(team: Team, owner: User) -> Version:
    queue = queue_of(team, owner, groups_of(run_with(team, steps=5)))
    judge_all(queue, [owner])
    rule = DatasetRule(test_share=0.3, margin="votes", cleaning=Cleaning(by=("gap",), gap_share=0.2, action="down-weight"))
    found = freeze_next_version(dataset_of(team, owner, queue), owner, rule)
    build_version(found.pk)
    found.refresh_from_db()
    assert found.counts["test"]
    assert found.counts["train"]
    return found


def exported(client: Client, version: Version, **query: str) -> bytes:
    response = client.get(f"/datasets/versions/{version.pk}/export/", query)
    assert response.status_code == 200
    assert response["Content-Disposition"].startswith("attachment")
    return b"".join(response.streaming_content)


def json_rows(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def test_json_lines_are_the_frozen_bytes(as_owner: Client, version: Version) -> None:
    for split in ("train", "test"):
        assert exported(as_owner, version, split=split) == version.path(split).read_bytes()


@pytest.mark.feature(69)
@pytest.mark.parametrize(("shape", "trainer", "rows"), [("preference", "dpo", 1), ("kto", "kto", 2), ("completion", "sft", 1)])
def test_every_form_and_format_says_the_same_and_can_be_trained_on(
    as_owner: Client, version: Version, tmp_path: Path, shape: str, trainer: str, rows: int
) -> None:
    lines = json_rows(exported(as_owner, version, shape=shape))
    packed = exported(as_owner, version, shape=shape, format="parquet")
    assert pq.read_table(io.BytesIO(packed)).to_pylist() == lines
    assert len(lines) == rows * version.counts["train"]
    for name, content in (("rows.jsonl", exported(as_owner, version, shape=shape)), ("rows.parquet", packed)):
        (tmp_path / name).write_bytes(content)
        assert len(read_rows(tmp_path / name, trainer)) == len(lines)
    if shape == "preference":
        assert {row["margin"] for row in lines} == {1.0}
        assert {row["weight"] for row in lines} | {row["weight"] for row in json_rows(exported(as_owner, version, split="test"))} != {1.0}


@pytest.mark.feature(70)
def test_provenance_goes_along_when_asked_for(as_owner: Client, version: Version) -> None:
    [first, *_] = json_rows(exported(as_owner, version, provenance="1"))
    assert json.loads(first["provenance"]) == version.rows.get(split="train", place=0).provenance
    packed = pq.read_table(io.BytesIO(exported(as_owner, version, provenance="1", format="parquet"))).to_pylist()
    assert packed[0]["provenance"] == first["provenance"]


def test_what_is_not_on_offer_is_the_versions_own(as_owner: Client, version: Version) -> None:
    assert exported(as_owner, version, shape="../x", format="exe", split="all") == version.path().read_bytes()


def test_a_lost_file_is_written_again_from_the_rows(as_owner: Client, version: Version) -> None:
    before = version.path().read_bytes()
    version.path().unlink()
    assert exported(as_owner, version) == before
