"""Dataset tools on versions: looked at before, made by a worker, never in place, with provenance down to the row; and who may use them."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from lab.data.datasets.downstream import flags_of
from lab.data.datasets.freezing import build_version, preview_next_version
from lab.data.datasets.models import Dataset, Form, Recall, RecallKind, Row, Source, Version, VersionState
from lab.data.datasets.rules import DatasetRule, RuleError
from lab.data.datasets.tool_acts import apply_tool_to_version
from lab.data.datasets.tool_plan import plan_tool
from lab.data.loop.graph import GraphBuilder
from lab.lib import bounded_process
from lab.lib.refusals import Refusal
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from tests.conftest import make_member
from tests.hostile import PAYLOADS, stored
from tests.lab.api.conftest import ApiClient, client_of
from tests.lab.datasets.labelled import dataset_of, groups_of, judge_all, queue_of, run_with
from trainers.data.datasets import read_rows

TOOL = "skyreels-v2"
STEPS = [f"Take {number}.\nAdd {number}.\nSo {2 * number}." for number in range(20)]


def make_source(client: Client, rows: list[dict[str, Any]], name: str = "Sums", test_share: str = "0") -> Version:
    """A version of an imported file."""
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    sent = client.post("/datasets/import/", {"file": SimpleUploadedFile("rows.jsonl", content)})
    fields = {"upload": sent["Location"].split("upload=")[1], "act": "make", "name": name, "rule": "1", "test_share": test_share}
    assert client.post("/datasets/import/", fields).status_code == 302
    return built(Version.across_teams.order_by("-pk")[0])


def built(version: Version) -> Version:
    build_version(version.pk)
    version.refresh_from_db()
    return version


@pytest.fixture
def source(as_owner: Client) -> Version:
    rows = [{"prompt": f"{number} and {number}?", "completion": text} for number, text in enumerate(STEPS)]
    return make_source(as_owner, [*rows, {"prompt": "Hello?", "completion": "Hello."}], test_share="0.3")


def address(version: Version, name: str = "version-tool") -> str:
    return reverse(name, args=[version.pk])


def sent(**more: Any) -> dict[str, Any]:
    settings = {"config.distortion": "swap", "config.steps": "auto", "config.per_answer": "1"}
    return {"tool": TOOL, "shown": TOOL, "seed": "0", "name": "Pairs", **settings, **more}


def applied(client: Client, source: Version, **more: Any) -> Version:
    response = client.post(address(source), sent(token=str(Version.across_teams.count()), **more))
    assert response.status_code == 302, response.content.decode()
    return built(Version.across_teams.order_by("-pk")[0])


def page(client: Client, url: str, **query: Any) -> str:
    response = client.get(url, query)
    assert response.status_code == 200
    return str(response.content.decode())


def test_from_right_answers_to_pairs_that_dpo_reads(as_owner: Client, source: Version, team: Team, owner: User) -> None:
    before = (source.digest, source.path().read_bytes(), list(source.rows.values()))
    assert address(source) in page(as_owner, f"/datasets/versions/{source.pk}/")
    assert "Corrupted answers as rejected" in page(as_owner, address(source))
    preview = page(as_owner, address(source, "version-tool-preview"), **sent())
    assert "answers with fewer than two steps" in preview
    assert "swapped" in preview
    assert Dataset.across_teams.count() == 1
    version = applied(as_owner, source)
    assert (version.dataset.name, version.dataset.form, version.dataset.source) == ("Pairs", Form.PREFERENCE, Source.TOOL)
    assert (version.state, version.created_by) == (VersionState.READY, owner)
    assert version.counts["left_out"] == {"answers with fewer than two steps": 1}
    assert (version.counts["items"], version.counts["train"] + version.counts["test"]) == (21, 20)
    pairs = read_rows(version.path(), "dpo")
    assert len(pairs) == version.counts["train"]
    for pair in pairs:
        chosen, rejected = pair["chosen"][0]["content"], pair["rejected"][0]["content"]
        assert chosen in STEPS
        assert chosen != rejected
        assert sorted(chosen.split("\n")) == sorted(rejected.split("\n"))
    train = page(as_owner, f"/datasets/versions/{source.pk}/train/")
    assert "Apply a dataset tool that makes preference pairs" in train
    assert "?trainer=dpo" in page(as_owner, f"/datasets/versions/{version.pk}/train/")
    source.refresh_from_db()
    assert (source.digest, source.path().read_bytes(), list(source.rows.values())) == before
    tool = Entry.across_teams.get(action="dataset.tool")
    assert (tool.actor, tool.object_id, tool.details) == (owner, str(version.dataset_id), {"tool": TOOL, "version": source.pk, "seed": 0})


def test_every_row_says_which_row_it_was_made_of_and_stays_in_its_split(as_owner: Client, source: Version) -> None:
    version = applied(as_owner, source, **{"config.per_answer": "2", "config.distortion": "mix"})
    assert version.counts["train"] > source.counts["train"] - 1
    assert version.counts["test"] > 0
    for row in version.rows.all():
        told = row.provenance["tool"]
        origin = source.rows.get(split=told["split"], place=told["row"] - 1)
        assert row.split == origin.split
        assert row.row["chosen"] == origin.row["completion"]
        assert (row.provenance["file"], row.provenance["line"]) == ("rows.jsonl", origin.provenance["line"])
        assert (told["name"], told["changed"]) == (TOOL, ["rejected"])


def test_the_pages_say_how_it_was_made_and_offer_to_make_it_again(as_owner: Client, source: Version) -> None:
    version = applied(as_owner, source, seed="7")
    shown = page(as_owner, f"/datasets/versions/{version.pk}/")
    for words in (f"/datasets/versions/{source.pk}/", "Sums v1", source.digest, "distortion: swap", "Source rows", "made by a tool"):
        assert words in shown
    assert "Freeze next" not in shown
    assert "Made of it by tools" in page(as_owner, f"/datasets/versions/{source.pk}/")
    assert "a dataset tool" in page(as_owner, "/datasets/")
    again = page(as_owner, f"/datasets/{version.dataset_id}/")
    assert "Freeze version" not in again
    [link] = re.findall(r'href="([^"]*/tool/\?[^"]*)"', again)
    filled = page(as_owner, html.unescape(link))
    assert 'value="7"' in filled
    assert '<option value="swap" selected>' in filled
    assert f'<option value="{version.dataset_id}" selected>' in filled
    builder = GraphBuilder(version.dataset.team)
    edges = builder.build().edges
    assert edges[("version", str(source.pk)), ("version", str(version.pk))] == f"made by {TOOL}"


def test_the_same_seed_makes_the_same_bytes_and_a_next_version_of_the_same_dataset(as_owner: Client, source: Version) -> None:
    first = applied(as_owner, source, **{"config.distortion": "shuffle"})
    second = applied(as_owner, source, **{"config.distortion": "shuffle", "dataset": str(first.dataset_id)})
    third = applied(as_owner, source, **{"config.distortion": "shuffle", "dataset": str(first.dataset_id), "seed": "1"})
    assert [version.number for version in (first, second, third)] == [1, 2, 3]
    assert first.dataset_id == second.dataset_id == third.dataset_id
    assert first.digest == second.digest != third.digest
    assert as_owner.get(f"/datasets/versions/{second.pk}/diff/", {"against": first.pk}).status_code == 200


def test_a_form_that_is_sent_twice_makes_one_version(as_owner: Client, source: Version) -> None:
    answers = [as_owner.post(address(source), sent(token="once")) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [302, 302]
    assert answers[0]["Location"] == answers[1]["Location"]
    assert Dataset.across_teams.filter(source=Source.TOOL).count() == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"name": " "}, "Enter a name."),
        ({"name": "x" * 101}, "has 101 characters"),
        ({"seed": "-1"}, "Enter a whole number"),
        ({"config.per_answer": "99"}, "Must be at most 16"),
        ({"config.per_answer": "2.5"}, "Must be a whole number"),
        ({"config.distortion": "warp"}, "Must be one of"),
        ({"dataset": "999999"}, "not there"),
    ],
)
def test_what_cannot_work_is_named_at_its_input_and_nothing_is_made(as_owner: Client, source: Version, more: dict[str, str], words: str) -> None:
    response = as_owner.post(address(source), sent(notes="keep this", token="t", **more))
    assert response.status_code == 422
    assert words in response.content.decode()
    assert "keep this" in response.content.decode()
    assert Version.across_teams.count() == 1
    if "name" not in more and "dataset" not in more:
        assert words in page(as_owner, address(source, "version-tool-preview"), **sent(**more))


def test_settings_that_were_sent_for_another_tool_are_not_read(as_owner: Client, source: Version) -> None:
    assert "Must be" not in page(as_owner, address(source, "version-tool-preview"), **sent(shown="another", **{"config.per_answer": "99"}))


def test_a_tool_that_makes_nothing_fails_and_says_why(as_owner: Client, source: Version, team: Team) -> None:
    short = make_source(as_owner, [{"prompt": "Hello?", "completion": "Hello."}], "Greetings")
    assert "makes nothing of these rows" in page(as_owner, address(short, "version-tool-preview"), **sent())
    version = applied(as_owner, short)
    assert version.state == VersionState.FAILED
    shown = page(as_owner, f"/datasets/versions/{version.pk}/")
    assert "The tool made no rows. Left out: 1 answers with fewer than two steps." in shown
    assert "Change the settings" in shown
    assert "Change the rule" not in shown


def test_a_source_that_is_gone_or_a_tool_over_its_limits_fails_the_build_in_words(
    as_owner: Client, source: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: Any, **__: Any) -> Any:
        raise bounded_process.TooSlow("took long", "split it")

    queued = as_owner.post(address(source), sent(token="a"))
    version = Version.across_teams.order_by("-pk")[0]
    assert queued["Location"].endswith(f"/{version.pk}/")
    with monkeypatch.context() as patched:
        patched.setattr(bounded_process, "call_in_child", too_slow)
        assert "took longer than 60 s for 21 rows" in built(version).error
        assert "took longer than 10 s" in page(as_owner, address(source, "version-tool-preview"), **sent())
    assert as_owner.post(f"/datasets/versions/{version.pk}/retry/").status_code == 302
    Version.across_teams.filter(pk=source.pk).update(digest="0" * 64)
    assert "Sums v1 is not there any more" in built(version).error
    assert Row.across_teams.filter(version=version).count() == 0


def test_labels_behind_a_row_stay_behind_what_is_made_of_it(team: Team, owner: User, teammate: User) -> None:
    queue = queue_of(team, owner, groups_of(run_with(team, steps=1)))
    judge_all(queue, [teammate])
    labelled = dataset_of(team, owner, queue)
    frozen = Version.objects.create(dataset=labelled, number=1, rule=DatasetRule(queues=(queue.pk,), test_share=0).as_json())
    source = built(frozen)
    row = source.rows.order_by("pk")[0]
    said = {**row.row, "chosen": [{"role": "assistant", "content": "one\ntwo"}]}
    Row.objects.filter(version=source, pk=row.pk).update(row=said)
    made = built(apply_tool_to_version(source, plan_tool(source, TOOL, {}, 0), owner, name="Pairs"))
    [pair] = made.rows.all()
    assert (pair.labellers, pair.rollouts, pair.prompt, pair.queue) == ([teammate.pk], row.rollouts, row.prompt, queue.pk)
    assert pair.provenance["sides"] == {"chosen": row.provenance["sides"]["chosen"]}
    assert "votes" not in pair.provenance
    Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=teammate, reason="tired", by=owner)
    Recall.objects.create(team=team, kind=RecallKind.RULE, rule={"aggregation": "majority"}, reason="too few", by=owner)
    assert {pk: len(recalls) for pk, recalls in flags_of([source, made]).items()} == {source.pk: 2, made.pk: 2}


def test_a_dataset_of_tools_has_no_rule_to_freeze(as_owner: Client, source: Version) -> None:
    version = applied(as_owner, source)
    assert as_owner.post(f"/datasets/{version.dataset_id}/freeze/", {"rule": "1"}).status_code == 422
    assert as_owner.get(f"/datasets/versions/{version.pk}/diff/", {"against": "now"}).status_code == 422
    with pytest.raises(RuleError, match="made by dataset tools"):
        preview_next_version(version.dataset, DatasetRule())
    assert page(as_owner, f"/datasets/versions/{version.pk}/since/") == ""
    assert version.dataset.versions.count() == 1


def test_versions_that_no_tool_takes_and_those_not_ready_say_so(as_owner: Client, source: Version, team: Team) -> None:
    marked = Dataset.objects.create(team=team, name="Marks", form=Form.STEPWISE)
    steps = Version.objects.create(dataset=marked, number=1, state=VersionState.READY)
    assert "No tool takes these rows" in page(as_owner, address(steps))
    assert as_owner.post(address(steps), sent()).status_code == 422
    Version.across_teams.filter(pk=source.pk).update(state=VersionState.BUILDING)
    assert "still being built" in page(as_owner, address(source))
    assert as_owner.post(address(source), sent()).status_code == 422
    assert "is building" in page(as_owner, address(source, "version-tool-preview"), **sent())
    source.refresh_from_db()
    with pytest.raises(Refusal, match="is building"):
        plan_tool(source, TOOL, {}, 0)


def test_other_teams_find_nothing_and_viewers_may_not(as_owner: Client, as_stranger: Client, source: Version, team: Team) -> None:
    reader = Client()
    reader.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    for name in ("version-tool", "version-tool-preview"):
        assert as_stranger.get(address(source, name)).status_code == 404
        assert reader.get(address(source, name)).status_code == 403
    assert as_stranger.post(address(source), sent()).status_code == 404
    assert reader.post(address(source), sent()).status_code == 403
    assert "Apply a tool" not in page(reader, f"/datasets/versions/{source.pk}/")
    theirs = make_source(as_stranger, [{"prompt": "p", "completion": "a\nb"}], "Theirs")
    made = applied(as_owner, source)
    answer = as_stranger.post(address(theirs), sent(dataset=str(made.dataset_id)))
    assert answer.status_code == 422
    assert made.dataset.versions.count() == 1


def test_texts_are_shown_as_text(as_owner: Client) -> None:
    rows = [{"prompt": f"Say {stored(text)}", "completion": f"Said {stored(text)}\nand so"} for text in PAYLOADS]
    source = make_source(as_owner, rows, name="<script>alert(1)</script>")
    shown = page(as_owner, address(source)) + page(as_owner, address(source, "version-tool-preview"), **sent())
    for sign in ("<script>window", "<script>alert", "<img src=x", "<svg onload", "<iframe", "<b hx-get"):
        assert sign not in shown


def test_programs_list_preview_and_apply_tools(source: Version, team: Team, owner: User, stranger: User) -> None:
    api, theirs = client_of(team, owner), client_of(Team.objects.get(slug="elsewhere"), stranger)
    listed = {one["name"]: one for one in api.ask("dataset-tools").json()}
    assert listed[TOOL]["forms"]["completion"] == "preference"
    assert listed[TOOL]["parameters"]["properties"]["per_answer"]["maximum"] == 16
    preview = api.send(f"versions/{source.pk}/tool/preview", {"tool": TOOL}).json()
    assert (preview["read"], preview["made"], preview["total"]) == (21, 20, 21)
    assert preview["samples"][0]["provenance"]["tool"]["changed"] == ["rejected"]
    body = {"tool": TOOL, "config": {"distortion": "shuffle"}, "seed": 3}
    answers = [api.send(f"versions/{source.pk}/tool", body, **{"Idempotency-Key": "one"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    made = Version.across_teams.get(pk=answers[0].json()["id"])
    assert made.dataset.name == "Sums, corrupted"
    assert made.rule["tool"]["config"] == {"distortion": "shuffle", "steps": "auto", "keep_last": False, "per_answer": 1}
    refused_by(api, source, {"tool": TOOL, "config": {"per_answer": 0, "order": 1}}, ["config.per_answer", "config.order"])
    refused_by(api, source, {"tool": "skyreels"}, ["tool"])
    refused_by(api, source, {"tool": TOOL, "dataset": source.dataset_id}, ["dataset"])
    for path in ("tool", "tool/preview"):
        assert theirs.send(f"versions/{source.pk}/{path}", {"tool": TOOL}).status_code == 404
    assert Version.across_teams.count() == 2


def refused_by(api: ApiClient, source: Version, body: dict[str, Any], fields: list[str]) -> None:
    answer = api.send(f"versions/{source.pk}/tool", body)
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["errors"]] == fields
