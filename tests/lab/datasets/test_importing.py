"""Other people's files: what they look like is guessed, broken rows are named by line, nothing in them is run, and no name of theirs is a path."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from lab.accounts.models import Team
from lab.datasets import uploads
from lab.datasets.freezing import build
from lab.datasets.models import Dataset, Form, Source, Version, VersionState
from lab.datasets.raw import Broken, Unreadable, records, sniff
from lab.datasets.shapes import Mapped, convert, guess
from tests.hostile import PAYLOADS, stored
from trainers.datasets import read_rows

ASKED = [{"role": "user", "content": "2+2?"}]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


PREFERRED = {"prompt": ASKED, "chosen": said("4"), "rejected": said("5")}
SHARED = [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]
HH = {
    "chosen": "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: What is 2+2?\n\nAssistant: 4",
    "rejected": "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: What is 2+2?\n\nAssistant: 5\nor so",
}
CLEANED = {"prompt": "2+2?", "chosen": [*ASKED, *said("4")], "rejected": [*ASKED, *said("5")], "score_chosen": 9.0, "score_rejected": 2.5}
ANNOTATED = {"instruction": "2+2?", "completions": [{"response": "5", "annotations": {"a": {"Rating": "2"}, "b": {"Rating": "N/A"}}}]}
ANNOTATED["completions"] += [{"response": "4", "annotations": {"a": {"Rating": "5"}}}, {"response": "?", "overall_score": 1.0}]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("raw", "shape", "expected", "scores"),
    [
        (
            HH,
            "transcript",
            {
                "prompt": [{"role": "user", "content": "Hi"}, *said("Hello."), {"role": "user", "content": "What is 2+2?"}],
                "chosen": said("4"),
                "rejected": said("5\nor so"),
            },
            {},
        ),
        (CLEANED, "columns", {"prompt": ASKED, "chosen": said("4"), "rejected": said("5")}, {"chosen": 9.0, "rejected": 2.5}),
        (ANNOTATED, "rated", {"prompt": ASKED, "chosen": said("4"), "rejected": said("?")}, {"chosen": 5.0, "rejected": 1.0}),
        (
            {"question": "2+2?", "response_w": "4", "response_l": "5"},
            "columns",
            {"prompt": ASKED, "chosen": said("4"), "rejected": said("5")},
            {},
        ),
        (
            {"chosen": CLEANED["chosen"], "rejected": CLEANED["rejected"]},
            "columns",
            {"prompt": ASKED, "chosen": said("4"), "rejected": said("5")},
            {},
        ),
        ({"prompt": "2+2?", "completion": "4", "label": "True"}, "columns", {"prompt": ASKED, "completion": said("4"), "label": True}, {}),
        (
            {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
            "columns",
            {"prompt": ASKED, "completion": said("4")},
            {},
        ),
    ],
)
def test_known_shapes_are_guessed_and_converted(raw: dict[str, Any], shape: str, expected: dict[str, Any], scores: dict[str, float]) -> None:
    mapped = guess([raw])
    assert mapped.shape == shape
    assert convert(raw, mapped) == (expected, scores)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"prompt": "a", "chosen": "x", "rejected": "x"}, "the same"),
        ({"prompt": "a", "chosen": "x"}, "rejected is missing"),
        ({"prompt": " ", "chosen": "x", "rejected": "y"}, "prompt is empty"),
        ({"prompt": "a", "chosen": 3, "rejected": "y"}, "neither text nor a list"),
        ({"prompt": "a", "chosen": "x\0", "rejected": "y"}, "NUL"),
        ({"prompt": "a", "chosen": "\ud800", "rejected": "y"}, "surrogate"),
        ({"prompt": "a", "chosen": [{"role": "boss", "content": "x"}], "rejected": "y"}, "role 'boss'"),
        ({"prompt": "a", "chosen": [{"role": "user", "content": "b"}, *said("x")], "rejected": "y"}, "message of user"),
        ([1, 2], "no object"),
        (None, "no object"),
    ],
)
def test_rows_that_cannot_be_used_say_why(raw: Any, reason: str) -> None:
    mapped = Mapped("columns", Form.PREFERENCE, {name: name for name in ("prompt", "chosen", "rejected")})
    with pytest.raises(Broken, match=reason):
        convert(raw, mapped)


def test_dialogues_that_part_before_the_last_question_are_broken() -> None:
    other = {**HH, "rejected": HH["rejected"].replace("What is", "How much is")}
    with pytest.raises(Broken, match="part at a question"):
        convert(other, guess([other]))
    with pytest.raises(Broken, match="none is better"):
        convert({"prompt": "a", "completions": [{"text": "x", "score": 1}, {"text": "y", "score": 1}]}, guess([ANNOTATED | {"prompt": "a"}]))


def test_kinds_are_told_by_content(tmp_path: Path) -> None:
    files = {
        "jsonl": b'{"a": 1}\n{"a": 2}\n',
        "json": b'[\n{"a": 1}]',
        "csv": "\ufeffprompt,chosen\nä,b\n".encode(),
    }
    for kind, content in files.items():
        (tmp_path / kind).write_bytes(content)
        assert sniff(tmp_path / kind) == kind
    (tmp_path / "pretty").write_bytes(b'{\n "rows": [{"a": 1}, {"a": 2}]}')
    assert sniff(tmp_path / "pretty") == "json"
    assert list(records(tmp_path / "pretty", "json")) == [(1, {"a": 1}), (2, {"a": 2})]
    assert list(records(tmp_path / "csv", "csv")) == [(2, {"prompt": "ä", "chosen": "b"})]
    for content, why in ((b"", "empty"), (b"PK\x03\x04abc", "zip"), (b"\x80\x04\x95\0\0", "binary"), (b"hello there", "neither JSON nor a table")):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(Unreadable, match=why):
            sniff(tmp_path / "bad")


def send(client: Client, content: bytes, name: str = "pairs.jsonl") -> Any:
    return client.post("/datasets/import/", {"file": SimpleUploadedFile(name, content)})


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def imported(client: Client, token: str, **fields: Any) -> Version:
    response = client.post(
        "/datasets/import/", {"upload": token, "act": "make", "name": "Theirs", "rule": "1", "test_share": "0", "dedupe": "on", **fields}
    )
    assert response.status_code == 302, response.content.decode()
    version = Version.objects.get()
    build(version.pk)
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
    assert "2 broken rows" in page
    assert "is not JSON" in page
    assert "rejected is missing" in page or "chosen is missing" in page
    refused = as_owner.post("/datasets/import/", {"upload": token, "act": "make", "name": "Theirs"})
    assert refused.status_code == 422
    assert b"2 rows are broken" in refused.content
    assert not Dataset.objects.exists()
    version = imported(as_owner, token, skip="1")
    assert version.state == VersionState.READY, version.error
    assert (version.dataset.source, version.number, version.dataset.team) == (Source.IMPORT, 1, team)
    assert [row.provenance["line"] for row in version.rows.order_by("place")] == [1, 2, 5, 6]
    assert {row.provenance["file"] for row in version.rows.all()} == {"pairs.jsonl"}
    assert version.counts["left_out"] == {"broken rows of the file": 2, "duplicates": 1}
    assert len(read_rows(version.path(), "dpo")) == 4
    assert uploads.find(team, token) is None
    assert as_owner.get(f"/datasets/versions/{version.pk}/").status_code == 200
    assert as_owner.get(f"/datasets/{version.dataset_id}/").status_code == 200
    again = as_owner.post(f"/datasets/{version.dataset_id}/freeze/", {"rule": "1", "test_share": "0.5", "salt": "2", "dedupe": "on"})
    second = Version.objects.get(number=2)
    assert again.status_code == 302
    build(second.pk)
    second.refresh_from_db()
    assert second.counts["train"] + second.counts["test"] == 4
    assert second.counts["test"]


def test_tables_and_parquet_are_read(as_owner: Client) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["question", "good answer", "bad answer"], ["2+2?", "4\nfour", "5"]])
    token = token_of(send(as_owner, text.getvalue().encode(), "t.csv"))
    version = imported(as_owner, token, shape="columns", form="preference", column_chosen="good answer", column_rejected="bad answer")
    assert version.rows.get().row["chosen"] == said("4\nfour")
    Version.objects.all().delete()
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([CLEANED]), sink)
    version = imported(as_owner, token_of(send(as_owner, sink.getvalue(), "t.bin")))
    assert version.rows.get().provenance["scores"] == {"chosen": 9.0, "rejected": 2.5}


def test_names_of_clients_are_never_paths(as_owner: Client, team: Team) -> None:
    token = token_of(send(as_owner, lines(CLEANED), "..\\..\\/etc/pass\u202ewd.jsonl"))
    found = uploads.find(team, token)
    assert found is not None
    assert "/" not in found.name
    assert {path.name for path in uploads.folder_of(team).iterdir()} == {token, f"{token}.json"}
    for wrong in ("../" + token, token + "/..", "%2e%2e", "x" * 32, ""):
        assert uploads.find(team, wrong) is None
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


def test_what_a_file_holds_is_text(as_owner: Client) -> None:
    rows = [{"prompt": stored(text) or "x", "chosen": "yes " + stored(text), "rejected": "no"} for text in PAYLOADS if stored(text).strip()]
    odd = {"<b onclick=x>": 1, "chosen": "a", "rejected": "b", "prompt": "p"}
    response = send(as_owner, lines(*rows, odd), "<img src=x onerror=alert(1)>.jsonl")
    token = token_of(response)
    page = as_owner.get("/datasets/import/", {"upload": token}).content.decode()
    version = imported(as_owner, token, skip="1")
    page += as_owner.get(f"/datasets/versions/{version.pk}/").content.decode()
    for sign in ("<script>alert", "<img src=x", "<b onclick", "<svg onload", 'javascript:alert(1)"'):
        assert sign not in page


def test_old_uploads_are_swept(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = uploads.keep(team, "a.jsonl", [b"{}"])
    assert uploads.forget_old() == 0
    monkeypatch.setattr(uploads, "KEPT_SECONDS", -1.0)
    assert uploads.forget_old() == 1
    assert not uploads.path_of(team, kept).exists()


def test_a_short_parquet_file_that_unpacks_to_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb"
    pq.write_table(pa.Table.from_pylist([{"prompt": "x" * 5_000_000}]), path, compression="zstd")
    assert path.stat().st_size < 100_000
    assert sniff(path) == "parquet"
    monkeypatch.setattr("lab.datasets.raw.MOST_CHUNK", 1_000_000)
    with pytest.raises(Unreadable, match="one row group"):
        list(records(path, "parquet"))
    path.write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(Unreadable, match="not a readable Parquet"):
        list(records(path, "parquet"))
