"""Other people's files: what they look like is guessed, broken rows are named by line, nothing in them is run, and no name of theirs is a path."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from lab.data.datasets import uploads
from lab.data.datasets.freezing import build_version
from lab.data.datasets.models import Dataset, Form, Source, Version, VersionState
from lab.data.datasets.raw import UnreadableFile, detect_file_kind, read_raw_records
from lab.teams.accounts.models import Team
from tests.hostile import PAYLOADS, stored
from trainers.data.datasets import read_rows

ASKED = [{"role": "user", "content": "2+2?"}]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


CLEANED = {"prompt": "2+2?", "chosen": [*ASKED, *said("4")], "rejected": [*ASKED, *said("5")], "score_chosen": 9.0, "score_rejected": 2.5}


def test_kinds_are_told_by_content(tmp_path: Path) -> None:
    files = {
        "jsonl": b'{"a": 1}\n{"a": 2}\n',
        "json": b'[\n{"a": 1}]',
        "csv": "\ufeffprompt,chosen\nä,b\n".encode(),
    }
    for kind, content in files.items():
        (tmp_path / kind).write_bytes(content)
        assert detect_file_kind(tmp_path / kind) == kind
    (tmp_path / "pretty").write_bytes(b'{\n "rows": [{"a": 1}, {"a": 2}]}')
    assert detect_file_kind(tmp_path / "pretty") == "json"
    assert list(read_raw_records(tmp_path / "pretty", "json")) == [(1, {"a": 1}), (2, {"a": 2})]
    assert list(read_raw_records(tmp_path / "csv", "csv")) == [(2, {"prompt": "ä", "chosen": "b"})]
    for content, why in ((b"", "empty"), (b"PK\x03\x04abc", "zip"), (b"\x80\x04\x95\0\0", "binary"), (b"hello there", "neither JSON nor a table")):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(UnreadableFile, match=why):
            detect_file_kind(tmp_path / "bad")


def send(client: Client, content: bytes, name: str = "pairs.jsonl") -> Any:
    return client.post("/datasets/import/", {"file": SimpleUploadedFile(name, content)})


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def imported(client: Client, token: str, **fields: Any) -> Version:
    response = client.post(
        "/datasets/import/", {"upload": token, "act": "make", "name": "Theirs", "rule": "1", "test_share": "0", "dedupe": "on", **fields}
    )
    assert response.status_code == 302, response.content.decode()
    version = Version.across_teams.get()
    build_version(version.pk)
    version.refresh_from_db()
    return version


def token_of(response: Any) -> str:
    assert response.status_code == 302, response.content.decode()
    return str(response["Location"].split("upload=")[1])


def test_a_file_becomes_a_frozen_version_whose_rows_name_their_lines(as_owner: Client, team: Team) -> None:
    rows = [{"prompt": f"{n}+1?", "chosen": str(n + 1), "rejected": "?"} for n in range(4)]
    content = lines(*rows[:2]) + b"not json\n" + lines({"prompt": "x"}, *rows[2:], rows[0])
    token = token_of(send(as_owner, content))
    page = as_owner.get("/datasets/import/", {"upload": token}).content.decode()
    assert "2 invalid rows" in page
    assert "is not JSON" in page
    assert "rejected is missing" in page or "chosen is missing" in page
    refused = as_owner.post("/datasets/import/", {"upload": token, "act": "make", "name": "Theirs"})
    assert refused.status_code == 422
    assert b"2 rows are invalid" in refused.content
    assert not Dataset.across_teams.exists()
    version = imported(as_owner, token, skip="1")
    assert version.state == VersionState.READY, version.error
    assert (version.dataset.source, version.number, version.dataset.team) == (Source.IMPORT, 1, team)
    assert [row.provenance["line"] for row in version.rows.order_by("place")] == [1, 2, 5, 6]
    assert {row.provenance["file"] for row in version.rows.all()} == {"pairs.jsonl"}
    assert version.counts["left_out"] == {"invalid rows of the file": 2, "duplicates": 1}
    assert len(read_rows(version.path(), "dpo")) == 4
    assert uploads.find_upload(team, token) is None
    assert as_owner.get(f"/datasets/versions/{version.pk}/").status_code == 200
    assert as_owner.get(f"/datasets/{version.dataset_id}/").status_code == 200
    again = as_owner.post(f"/datasets/{version.dataset_id}/freeze/", {"rule": "1", "test_share": "0.5", "salt": "2", "dedupe": "on"})
    second = Version.across_teams.get(number=2)
    assert again.status_code == 302
    build_version(second.pk)
    second.refresh_from_db()
    assert second.counts["train"] + second.counts["test"] == 4
    assert second.counts["test"]


def test_tables_and_parquet_are_read(as_owner: Client) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["question", "good answer", "bad answer"], ["2+2?", "4\nfour", "5"]])
    token = token_of(send(as_owner, text.getvalue().encode(), "t.csv"))
    version = imported(as_owner, token, format="pairs", column_prompt="question", column_chosen="good answer", column_rejected="bad answer")
    assert version.rows.get().row["chosen"] == said("4\nfour")
    Version.across_teams.all().delete()
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([CLEANED]), sink)
    version = imported(as_owner, token_of(send(as_owner, sink.getvalue(), "t.bin")))
    assert version.rows.get().provenance["scores"] == {"chosen": 9.0, "rejected": 2.5}


def test_names_of_clients_are_never_paths(as_owner: Client, team: Team) -> None:
    token = token_of(send(as_owner, lines(CLEANED), "..\\..\\/etc/pass\u202ewd.jsonl"))
    found = uploads.find_upload(team, token)
    assert found is not None
    assert "/" not in found.name
    assert {path.name for path in uploads.folder_of(team).iterdir()} == {token, f"{token}.json"}
    for wrong in ("../" + token, token + "/..", "%2e%2e", "x" * 32, ""):
        assert uploads.find_upload(team, wrong) is None
    assert as_owner.get("/datasets/import/", {"upload": "../../secret"}).status_code == 404
    assert Path(settings.DATASETS_ROOT) in uploads.path_of(team, found).parents


def test_an_upload_belongs_to_its_team(as_owner: Client, as_stranger: Client) -> None:
    token = token_of(send(as_owner, lines(CLEANED)))
    assert as_stranger.get("/datasets/import/", {"upload": token}).status_code == 404
    assert as_stranger.post("/datasets/import/", {"upload": token, "act": "make", "name": "Mine"}).status_code == 404


def test_files_that_are_too_large_or_none_are_refused_and_not_kept(as_owner: Client, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_BYTES", 100)
    assert send(as_owner, b'{"a": 1}\n' * 50).status_code == 422
    assert as_owner.post("/datasets/import/", {}).status_code == 422
    assert send(as_owner, b"\x1f\x8b123").status_code == 422
    assert not list(uploads.folder_of(team).iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"prompt,answer\n" + b'"' * 160 + b"\n", "pairs.csv has no valid row: line 2 has 1 cell, the header has 2. Correct the file"),
        (b"prompt,answer\n", "pairs.csv has no rows. Choose a file"),
    ],
)
def test_a_file_without_a_row_that_could_be_used_says_why_and_is_not_kept(as_owner: Client, team: Team, content: bytes, words: str) -> None:
    response = send(as_owner, content, "pairs.csv")
    assert response.status_code == 422
    assert words in response.content.decode()
    assert list(uploads.folder_of(team).glob("*")) == []


def test_what_a_file_holds_is_text(as_owner: Client) -> None:
    rows = [{"prompt": stored(text) or "x", "chosen": "yes " + stored(text), "rejected": "no"} for text in PAYLOADS if stored(text).strip()]
    odd = {"<b onclick=x>": 1, "chosen": "a", "rejected": "b", "prompt": "p"}
    response = send(as_owner, lines(*rows, odd), "<img src=x onerror=alert(1)>.jsonl")
    token = token_of(response)
    page = as_owner.get("/datasets/import/", {"upload": token}).content.decode()
    assert "&lt;b onclick=x&gt;</code>" in page
    version = imported(as_owner, token, skip="1", leave="1", left_out="<b onclick=x>")
    page += as_owner.get(f"/datasets/versions/{version.pk}/").content.decode()
    for sign in ("<script>alert", "<img src=x", "<b onclick", "<svg onload", 'javascript:alert(1)"'):
        assert sign not in page


def test_old_uploads_are_swept(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = uploads.save_upload(team, "a.jsonl", [b"{}"])
    assert uploads.forget_old() == 0
    monkeypatch.setattr(uploads, "KEPT_SECONDS", -1.0)
    assert uploads.forget_old() == 1
    assert not uploads.path_of(team, kept).exists()


def test_a_short_parquet_file_that_unpacks_to_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb"
    pq.write_table(pa.Table.from_pylist([{"prompt": "x" * 5_000_000}]), path, compression="zstd")
    assert path.stat().st_size < 100_000
    assert detect_file_kind(path) == "parquet"
    monkeypatch.setattr("lab.data.datasets.raw_parquet.MOST_CHUNK", 1_000_000)
    with pytest.raises(UnreadableFile, match="one row group"):
        list(read_raw_records(path, "parquet"))
    path.write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(UnreadableFile, match="not a readable Parquet"):
        list(read_raw_records(path, "parquet"))


def test_columns_that_are_left_out_are_listed_and_agreed_to(as_owner: Client, team: Team) -> None:
    rows = [
        {"id": 1, "system_prompt": "Be brief.", "question": "2+2?", "response": "4"},
        {"source": "s", "system_prompt": "", "question": "1+1?", "response": "2"},
    ]
    token = token_of(send(as_owner, lines(*rows)))
    page = as_owner.get("/datasets/import/", {"upload": token}).content.decode()
    assert "Recognized as <strong>Orca</strong>" in page
    assert "2 unused columns" in page
    assert page.count('class="pair-row"') == 2
    sent = {"upload": token, "act": "make", "name": "Theirs", "rule": "1", "test_share": "0"}
    for more in ({}, {"leave": "1"}, {"left_out": ["id", "source"]}, {"leave": "1", "left_out": ["id"]}):
        refused = as_owner.post("/datasets/import/", {**sent, **more})
        assert refused.status_code == 422
        assert b"2 columns are unused: id, source" in refused.content
    assert not Dataset.across_teams.exists()
    version = imported(as_owner, token, leave="1", left_out=["id", "source"])
    first, second = version.rows.order_by("place")
    assert first.row == {"prompt": [{"role": "system", "content": "Be brief."}, *ASKED], "completion": said("4")}
    assert second.row["prompt"] == [{"role": "user", "content": "1+1?"}]
    words = as_owner.get(f"/datasets/versions/{version.pk}/").content.decode()
    assert "Left out" in words
    assert "id, source" in words


def test_a_build_refuses_columns_that_nobody_agreed_to_leave_out(as_owner: Client, team: Team) -> None:
    token = token_of(send(as_owner, lines(CLEANED)))
    version = imported(as_owner, token)
    again = Version.objects.create(dataset=version.dataset, number=2, rule=version.rule)
    kept = uploads.save_upload(team, "more.jsonl", [lines({**CLEANED, "winner": "b"})])
    uploads.save_upload_metadata(team, replace(kept, kind="jsonl"))
    again.rule["import"]["token"] = kept.token
    again.save()
    build_version(again.pk)
    again.refresh_from_db()
    assert again.state == VersionState.FAILED
    assert "unconfirmed unused columns: winner" in again.error


def test_a_recorded_preference_is_used_or_the_import_is_refused(as_owner: Client) -> None:
    rows = [{"question": "2+2?", "one": "5", "two": "4", "winner": "two"}, {"question": "1+1?", "one": "2", "two": "3", "winner": "one"}]
    token = token_of(send(as_owner, lines(*rows)))
    inverted = {"format": "pairs", "column_prompt": "question", "column_chosen": "one", "column_rejected": "two", "leave": "1", "left_out": "winner"}
    refused = as_owner.post("/datasets/import/", {"upload": token, "act": "make", "name": "Theirs", **inverted})
    assert refused.status_code == 422
    assert b"which answer is better and would be ignored" in refused.content
    used = {"format": "compared", "column_prompt": "question", "column_first": "one", "column_second": "two", "column_preference": "winner"}
    unnamed = as_owner.post("/datasets/import/", {"upload": token, "act": "make", "name": "Theirs", **used})
    assert unnamed.status_code == 422
    assert not Dataset.across_teams.exists()
    version = imported(as_owner, token, **used, setting_says_first="one", setting_says_second="two")
    assert [row.row["chosen"] for row in version.rows.order_by("place")] == [said("4"), said("2")]


CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
TOOLS = [{"type": "function", "function": {"name": "add"}}]
CALLED = {
    "messages": [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "4"},
        *said("4"),
    ]
}


def test_calls_of_tools_survive_import_page_and_export(as_owner: Client) -> None:
    version = imported(as_owner, token_of(send(as_owner, lines({**CALLED, "tools": TOOLS}, {"messages": [*ASKED, *said("5")]}))))
    plain, called = sorted((row.row for row in version.rows.all()), key=lambda row: len(row["prompt"]))
    assert called["prompt"][1:] == [{"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "4", "tool_call_id": "c"}]
    assert called["tools"] == TOOLS
    assert "[calls] add({&quot;a&quot;: 2})" in as_owner.get(f"/datasets/versions/{version.pk}/").content.decode()
    rows = read_rows(version.path(), "sft")
    assert [message["role"] for row in rows for message in row["prompt"] if "tool_calls" in message] == ["assistant"]
    for kind in ("jsonl", "parquet"):
        response = as_owner.get(f"/datasets/versions/{version.pk}/export/", {"format": kind})
        content = b"".join(response.streaming_content)  # type: ignore[attr-defined]
        Version.across_teams.all().delete()
        Dataset.across_teams.all().delete()
        version = imported(as_owner, token_of(send(as_owner, content, f"again.{kind}")))
        assert sorted((row.row for row in version.rows.all()), key=lambda row: len(row["prompt"])) == [plain, called]


@pytest.mark.parametrize(
    ("raw", "form", "row"),
    [
        ({"question": "2+2?", "answer": "So.\n#### 4"}, Form.PROMPT, {"prompt": ASKED, "reference": "4", "solution": "So."}),
        (
            {"prompt": "2+2?", "completions": ["2+2", "is 5"], "labels": [True, False]},
            Form.STEPWISE,
            {"prompt": "2+2?", "completions": ["2+2", "is 5"], "labels": [True, False]},
        ),
    ],
)
def test_forms_that_are_imported_alone_are_shown_and_exported(as_owner: Client, raw: dict[str, Any], form: Form, row: dict[str, Any]) -> None:
    version = imported(as_owner, token_of(send(as_owner, lines(raw))))
    assert (version.dataset.form, version.rows.get().row) == (form, row)
    assert as_owner.get(f"/datasets/versions/{version.pk}/").status_code == 200
    content = b"".join(as_owner.get(f"/datasets/versions/{version.pk}/export/", {"format": "parquet"}).streaming_content)  # type: ignore[attr-defined]
    assert pq.read_table(io.BytesIO(content)).to_pylist() == [row]


def test_the_launch_form_names_the_folder_for_files_of_ones_own(as_owner: Client, team: Team) -> None:
    assert f"<code>{settings.DATASETS_ROOT}/{team.pk}</code>" in as_owner.get("/launch/grpo/").content.decode()
