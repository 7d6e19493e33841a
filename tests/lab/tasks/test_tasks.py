"""A task is made in the browser: from rows to a file with a hash, in versions that never change, of which nothing is lost when something is wrong."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import pytest
from django.test import Client

from lab.data.tasks.models import Task, TaskVersion
from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from tests.lab.rewards.making import make_function
from tests.lab.tasks.making import QUESTIONS, inputs, make_task, token_of, upload, write_csv


def read_lines(version: TaskVersion) -> list[dict[str, Any]]:
    return [json.loads(line) for line in version.path.read_text().splitlines()]


def errors_in(page: str) -> list[str]:
    return [text for text in re.findall(r'class="field-error"[^>]*>([^<]+)<', page) if text.strip()]


def test_a_csv_becomes_a_task_with_a_hash_and_a_held_out_share(as_owner: Client, team: Team) -> None:
    page = as_owner.get(upload(as_owner)["Location"]).content.decode()
    assert '<option value="question" selected>' in page  # guessed
    assert '<option value="answer" selected>' in page
    version = make_task(as_owner, system="Answer with a number.", shot_user=["1+1?"], shot_assistant=["2"], data=["level"])
    assert version.path.stat().st_mode & 0o222 == 0
    assert version.sha256 == hashlib.sha256(version.path.read_bytes()).hexdigest()
    definition, *rows = read_lines(version)
    assert definition["system"] == "Answer with a number."
    assert definition["examples"] == [{"assistant": "2", "user": "1+1?"}]
    assert definition["rewards"][0]["definition"] == {"config": {}, "function": "exact-match", "kind": "library"}
    assert {row["prompt"] for row in rows} == {row["question"] for row in QUESTIONS}
    assert rows[3] == {"data": {"level": "0"}, "prompt": "What is 3 + 3?", "reference": "6", "split": rows[3]["split"]}
    assert 2 <= version.counts["heldout"] <= 16
    assert version.counts["train"] + version.counts["heldout"] == 40
    assert [entry.action for entry in Entry.across_teams.filter(action__startswith="task.").order_by("pk")] == ["task.create", "task.version"]
    shown = as_owner.get(f"/tasks/{version.task_id}/").content.decode()
    assert "Launch a run on this task" in shown
    assert version.sha256 in shown
    assert "Sums" in as_owner.get("/tasks/").content.decode()


def test_equal_prompts_are_on_one_side_and_a_column_that_says_otherwise_is_refused(as_owner: Client, team: Team) -> None:
    rows = [{"question": f"{number % 7}  + 1?", "answer": "x", "part": "test" if number == 20 else "train"} for number in range(40)]
    token = token_of(upload(as_owner, write_csv(rows)))
    page = as_owner.post("/tasks/new/", inputs(upload=token, split="column", split_column="part", heldout="test"))
    assert page.status_code == 422
    assert any("1 prompt is both held out and trained on. The first: line 22" in text for text in errors_in(page.content.decode()))
    assert not Task.across_teams.exists()
    version = make_task(as_owner, write_csv(rows), share="40")
    sides: dict[str, set[str]] = {}
    for row in read_lines(version)[1:]:
        sides.setdefault(row["prompt"], set()).add(row["split"])
    assert all(len(one) == 1 for one in sides.values())
    assert version.counts["repeated"] == 33


def test_what_was_typed_stays_and_what_is_wrong_is_said_at_the_field(as_owner: Client, team: Team) -> None:
    token = token_of(upload(as_owner))
    wrong = {
        "name": "",
        "column_prompt": "nothing",
        "share": "120",
        "system": "Kept <b>text</b>",
        "reward.0.name": "Not A Name",
        "reward.0.weight": "x",
    }
    response = as_owner.post("/tasks/new/", inputs(upload=token, **wrong, shot_user=["only one"], shot_assistant=[""]))
    page = response.content.decode()
    assert response.status_code == 422
    texts = errors_in(page)
    for words in ("Enter a name", "no such column", "from 0 to 90", "lowercase letters", "Enter a number from", "needs both texts"):
        assert any(words in text for text in texts), words
    assert "Kept &lt;b&gt;text&lt;/b&gt;" in page
    assert "only one" in page
    assert 'value="Not A Name"' in page
    none = as_owner.post("/tasks/new/", inputs(upload=token, rewards="0"))
    assert any("Add a reward function" in text for text in errors_in(none.content.decode()))
    parameter = as_owner.post("/tasks/new/", inputs(upload=token, **{"reward.0.config.answer": "pattern"}))
    assert any("regular expression" in text for text in errors_in(parameter.content.decode()))


def test_rewards_and_examples_are_added_and_removed_on_the_page(as_owner: Client, team: Team) -> None:
    token = token_of(upload(as_owner))
    added = as_owner.post("/tasks/new/", inputs(upload=token, act="reward-add", add="library:tags")).content.decode()
    assert 'name="reward.1.choice" value="library:tags"' in added
    assert 'name="reward.1.name" value="tags"' in added
    two = {"rewards": "2", "reward.1.choice": "library:tags", "reward.1.shown": "library:tags", "reward.1.name": "tags", "reward.1.weight": "0.5"}
    removed = as_owner.post("/tasks/new/", inputs(upload=token, act="reward-remove:0", **two)).content.decode()
    assert 'name="reward.0.name" value="tags"' in removed
    assert 'value="0.5"' in removed
    assert "reward.1." not in removed
    shot = as_owner.post("/tasks/new/", inputs(upload=token, act="shot-add")).content.decode()
    assert shot.count('name="shot_user"') == 1


def test_a_format_gate_is_a_column_that_another_needs(as_owner: Client, team: Team) -> None:
    two = {
        "rewards": "2",
        "reward.1.choice": "library:tags",
        "reward.1.shown": "",
        "reward.1.name": "form",
        "reward.1.weight": "0",
        "reward.0.gate": "1",
    }
    version = make_task(as_owner, **two)
    accuracy, form = version.definition["rewards"]
    assert accuracy["definition"] | {"gate": None, "reward": None} == {
        "kind": "gate",
        "gate": None,
        "at_least": 1.0,
        "reward": None,
        "otherwise": 0.0,
    }
    assert accuracy["definition"]["gate"] == form["definition"]
    page = as_owner.get(f"/tasks/{version.task_id}/edit/").content.decode()
    assert '<option value="1" selected>form scores 1</option>' in page
    assert 'name="reward.0.choice" value="library:exact-match"' in page
    token = token_of(upload(as_owner))
    wrong = as_owner.post("/tasks/new/", inputs(upload=token, **{**two, "name": "Other", "reward.0.gate": "0"}))
    assert any("Choose another column" in text for text in errors_in(wrong.content.decode()))


def test_a_new_version_says_in_words_what_changed(as_owner: Client, team: Team) -> None:
    first = make_task(as_owner, system="Answer.")
    page = as_owner.get(f"/tasks/{first.task_id}/edit/").content.decode()
    assert "Save version 2" in page
    assert 'name="reward.0.name" value="accuracy"' in page
    same = as_owner.post(f"/tasks/{first.task_id}/edit/", inputs(system="Answer."))
    assert same.status_code == 422
    assert "Nothing has changed" in same.content.decode()
    changes = {"system": "Answer with a number.", "reward.0.weight": "2", "column_demonstration": "answer", "note": "More weight"}
    assert as_owner.post(f"/tasks/{first.task_id}/edit/", inputs(**changes)).status_code == 302
    task = Task.across_teams.get()
    assert [version.number for version in task.versions.all()] == [2, 1]
    words = as_owner.get(f"/tasks/{task.pk}/diff/?from=1&to=2").content.decode()
    for text in ("The weight of accuracy: 1 became 2.", "The system prompt changed.", "0 became 40 (+40).", "none became answer."):
        assert text in words, text
    other = token_of(upload(as_owner, write_csv(QUESTIONS[:10]), name="fewer.csv", task=str(task.pk)))
    assert as_owner.post(f"/tasks/{task.pk}/edit/", inputs(upload=other)).status_code == 302
    assert "sums.csv became fewer.csv." in as_owner.get(f"/tasks/{task.pk}/diff/?from=2&to=3").content.decode()


def test_deleting_can_be_undone_and_waits_for_no_run(as_owner: Client, team: Team, settings: Any) -> None:
    from lab.data.tasks.chores import purge_due_tasks

    version = make_task(as_owner)
    path, source = version.path, version.path.parent / version.source["file"]
    assert as_owner.post(f"/tasks/{version.task_id}/delete/").status_code == 302
    assert as_owner.get(f"/tasks/{version.task_id}/").status_code == 404
    assert "Recently deleted" in as_owner.get("/tasks/").content.decode()
    token = token_of(upload(as_owner))
    assert any("A deleted task has this name" in text for text in errors_in(as_owner.post("/tasks/new/", inputs(upload=token)).content.decode()))
    as_owner.post(f"/tasks/{version.task_id}/restore/")
    assert as_owner.get(f"/tasks/{version.task_id}/").status_code == 200
    as_owner.post(f"/tasks/{version.task_id}/delete/")
    settings.BIN_DAYS = 0
    assert purge_due_tasks() == 1
    assert not path.exists()
    assert not source.exists()
    assert not Task.across_teams.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x7fELF\0\0\0", "is a binary file"),
        (b"[" + b"[" * 100_000, "nested too deeply"),
        (",".join(f"c{number}" for number in range(20_000)).encode() + b"\n1,2\n", "has more than 10,000 columns"),
        (b"", "is empty"),
    ],
)
def test_hostile_files_are_refused_with_the_reason(as_owner: Client, team: Team, content: bytes, words: str) -> None:
    response = upload(as_owner, content)
    assert response.status_code == 422
    assert words in response.content.decode()


def test_names_and_cells_that_are_markup_or_formulas_are_text(as_owner: Client, team: Team) -> None:
    rows = [{"<img src=x onerror=alert(1)>": f"=HYPERLINK({number})", "answer": '"><script>1</script>'} for number in range(6)]
    column = "<img src=x onerror=alert(1)>"
    token = token_of(upload(as_owner, write_csv(rows), name="<b>x</b>.csv"))
    page = as_owner.get(f"/tasks/new/?upload={token}").content.decode()
    assert "<img src=x" not in page
    assert "<b>x</b>" not in page
    name = "</title><script>alert(1)</script>"
    made = as_owner.post("/tasks/new/", inputs(upload=token, name=name, column_prompt=column))
    assert made.status_code == 302
    version = TaskVersion.across_teams.get()
    assert read_lines(version)[1]["prompt"] == "=HYPERLINK(0)"
    for address in ("/tasks/", f"/tasks/{version.task_id}/", f"/tasks/{version.task_id}/edit/", f"/launch/?task=version-{version.pk}"):
        assert "<script>alert" not in as_owner.get(address).content.decode(), address


def test_the_teams_own_reward_functions_are_columns_and_keep_their_version(as_owner: Client, team: Team, owner: User) -> None:
    function = make_function(team, owner, name="Short answers").function
    token = token_of(upload(as_owner))
    added = as_owner.post("/tasks/new/", inputs(upload=token, act="reward-add", add=f"team:{function.pk}")).content.decode()
    assert 'name="reward.1.name" value="short-answers"' in added
    two = {"rewards": "2", "reward.1.choice": f"team:{function.pk}", "reward.1.shown": "", "reward.1.name": "short", "reward.1.weight": "0.5"}
    version = make_task(as_owner, **two)
    column = version.definition["rewards"][1]
    assert column["origin"] == {"id": function.pk, "version": 1}
    assert column["definition"] == function.newest.definition
    assert "Short answers v1" in as_owner.get(f"/tasks/{version.task_id}/").content.decode()
    page = as_owner.get(f"/tasks/{version.task_id}/edit/").content.decode()
    assert "<bdi>Short answers v1</bdi>" in page
    kept = {"definition": column["definition"], "origin": {"id": 10**30, "version": 1}}
    hostile = two | {"reward.1.choice": "kept", "reward.1.definition": json.dumps(kept), "name": "Other"}
    assert as_owner.post("/tasks/new/", inputs(upload=token, act="shot-add", **hostile)).status_code == 200
