"""Reward functions of a team: made in a form, in versions that never change, tried in a child, offered where rewards are chosen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from lab.lib.refusals import InputRefusal
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.rewards.definition_check import parse_definition
from lab.training.rewards.models import RewardFunction, RewardVersion
from lab.training.runs.palette import find_palette_entries
from lab.training.runs.reward_choices import list_reward_choices
from tests.conftest import make_member
from tests.lab.rewards.making import EXACT, LENGTH_CODE, editor_inputs, make_function
from tests.lab.supervisor.spools import make_run, rollout, started, store


def send(client: Client, path: str = "/rewards/new/", **inputs: str) -> Any:
    return client.post(path, editor_inputs(**inputs))


def library_inputs(team: Team, function: str, **config: Any) -> dict[str, str]:
    return list_reward_choices(team)[f"library:{function}"].write_inputs(config, "library")


def error_at(page: str, name: str) -> str:
    return page.split(f'id="error-{name}"')[1].split(">", 1)[1].split("</p>")[0].strip()


def test_an_empty_list_says_what_to_do_and_a_function_is_made_with_the_librarys_parameters(as_owner: Client, owner: User, team: Team) -> None:
    assert "No reward functions yet" in as_owner.get("/rewards/").content.decode()
    chosen = library_inputs(team, "exact-match", answer="boxed")
    answer = send(as_owner, kind="library", name="boxed answer", note="first", **chosen)
    assert answer.status_code == 302, answer.content.decode()
    version = RewardVersion.objects.of(team).get()
    assert version.definition == {"kind": "library", "function": "exact-match", "config": {"answer": "boxed"}}
    assert (str(version), version.note, version.created_by) == ("boxed answer v1", "first", owner)
    shown = as_owner.get(answer.headers["Location"]).content.decode()
    assert "exact-match(answer = boxed)" in shown
    assert "exact-match(answer = boxed)" in as_owner.get("/rewards/").content.decode()
    assert Entry.objects.of(team).filter(action="reward.create").count() == 1
    assert [entry.kind for entry in find_palette_entries(team, owner, "owner", "boxed")] == ["reward function"]


def test_saving_makes_a_version_versions_stay_and_differ_in_words(as_owner: Client, owner: User, team: Team) -> None:
    first = make_function(team, owner, "mine", LENGTH_CODE)
    path = f"/rewards/{first.function_id}/edit/"
    assert "return len(completion)" in as_owner.get(path).content.decode()
    same = send(as_owner, path, kind="code", source=LENGTH_CODE["source"])
    assert "Nothing changed since version 1." in same.content.decode()
    assert send(as_owner, path, kind="code", source="def score(completion, reference, data):\n    return 0.5\n", note="flat").status_code == 302
    assert [one.number for one in RewardVersion.objects.of(team)] == [2, 1]
    first.refresh_from_db()
    assert first.definition == LENGTH_CODE
    diff = as_owner.get(f"/rewards/{first.function_id}/diff/?from=1&to=2").content.decode()
    assert "<ins>" in diff
    assert "<del>" in diff
    assert "<ins>" not in as_owner.get(f"/rewards/{first.function_id}/diff/?from=2&to=2").content.decode()


def test_a_composition_of_a_team_function_and_the_library_holds_complete_definitions(as_owner: Client, owner: User, team: Team) -> None:
    own = make_function(team, owner, "length", LENGTH_CODE)
    added = send(as_owner, kind="sum", act="part-add", add=f"team:{own.function_id}").content.decode()
    assert "length v1" in added
    parts = {"parts": "2", "part__0__choice": f"team:{own.function_id}", "part__0__weight": "0.5", "part__1__choice": "library:exact-match"}
    wrong = send(as_owner, kind="sum", **{**parts, "part__0__weight": "much"})
    assert wrong.status_code == 422
    assert "Enter a number" in error_at(wrong.content.decode(), "part.0.weight")
    assert send(as_owner, kind="sum", name="both", **parts).status_code == 302
    made = RewardVersion.objects.of(team).get(function__name="both")
    assert made.definition["parts"] == [{"reward": LENGTH_CODE, "weight": 0.5}, {"reward": EXACT, "weight": 1.0}]
    edited = as_owner.get(f"/rewards/{made.function_id}/edit/").content.decode()
    assert "length v1" in edited
    assert 'value="0.5"' in edited


def test_errors_stand_at_their_field_or_at_their_path(as_owner: Client, team: Team) -> None:
    page = send(as_owner, kind="library", **library_inputs(team, "regex", pattern="(a")).content.decode()
    assert error_at(page, "library.config.pattern")
    assert "Is not valid Python" in error_at(send(as_owner, kind="code", source="def score(:").content.decode(), "source")
    deep = {"kind": "gate", "gate": {"kind": "product", "parts": [EXACT, {"kind": "library", "function": "exact-mach"}]}, "reward": EXACT}
    said = error_at(send(as_owner, kind="json", definition=json.dumps(deep)).content.decode(), "definition")
    assert said.startswith("gate.parts.1.function: There is no such reward function")
    assert "exact-match" in said
    assert "not JSON" in error_at(send(as_owner, kind="json", definition="{").content.decode(), "definition")
    assert "Enter a name." in send(as_owner, kind="json", name="", definition=json.dumps(EXACT)).content.decode()
    assert not RewardFunction.objects.of(team).exists()


def test_paths_of_the_contract_are_those_of_the_json() -> None:
    given = {"kind": "gate", "gate": {"kind": "code", "source": 1}, "reward": {"kind": "sum", "parts": [{"reward": {"kind": "nope"}}]}}
    with pytest.raises(InputRefusal) as caught:
        parse_definition(given)
    assert [problem.field for problem in caught.value.problems] == ["definition.gate.source", "definition.reward.parts.0.reward.kind"]


@pytest.mark.feature(13)
def test_a_draft_is_tried_on_pasted_completions_in_a_child(as_owner: Client) -> None:
    rows = {"rows": "2", "row__0__completion": "abc", "row__0__data": '{"more": 2}', "row__1__completion": "ab", "row__1__data": '{"more": "x"}'}
    page = send(as_owner, kind="code", act="try", source=LENGTH_CODE["source"], **rows).content.decode()
    assert "<strong>5</strong>" in page
    assert "TypeError" in page
    broken = send(as_owner, kind="code", act="try", source=LENGTH_CODE["source"], row__0__completion="x", row__0__data="{").content.decode()
    assert "not JSON" in error_at(broken, "row.0.data")


def test_rows_to_try_come_from_the_newest_step_of_a_run_of_the_team(as_owner: Client, team: Team) -> None:
    run = make_run(team)
    same = [rollout(2, sample=sample, completion="newer", reference="42") for sample in range(3)]
    store(run, started(), rollout(1, completion="older"), *same, rollout(2, group=1, completion="another"))
    page = send(as_owner, kind="library", act="rows-load", **{"from": str(run.pk)}).content.decode()
    assert page.count("newer</textarea>") == page.count("another</textarea>") == 1  # equal ones once, each group in turn
    assert "older</textarea>" not in page
    assert "newer</textarea>" in page
    assert "42</textarea>" in page
    assert "Choose a run." in send(as_owner, kind="library", act="rows-load").content.decode()
    assert (
        "no stored rollouts" in send(as_owner, kind="library", act="rows-load", **{"from": "00000000-0000-0000-0000-000000000000"}).content.decode()
    )


def test_json_begins_with_what_the_form_stood_for(as_owner: Client) -> None:
    chosen = {"library__choice": "library:exact-match", "library__shown": "library:exact-match"}
    page = send(as_owner, act="kind", kind="json", **{**chosen, "was": "library"}).content.decode()
    assert "&quot;function&quot;: &quot;exact-match&quot;" in page


def test_archived_functions_are_offered_nowhere_and_viewers_only_read(as_owner: Client, owner: User, team: Team) -> None:
    own = make_function(team, owner)
    assert f"team:{own.function_id}" in list_reward_choices(team)
    viewer = Client()
    viewer.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert viewer.get(f"/rewards/{own.function_id}/").status_code == 200
    assert viewer.post("/rewards/new/", editor_inputs("json", definition=json.dumps(EXACT))).status_code == 403
    annotator = Client()
    annotator.force_login(make_member("annotator@example.org", team, Role.ANNOTATOR))
    assert annotator.get("/rewards/").status_code == 403
    as_owner.post(f"/rewards/{own.function_id}/archive/")
    assert f"team:{own.function_id}" not in list_reward_choices(team)
    assert "Archived" in as_owner.get("/rewards/").content.decode()
    as_owner.post(f"/rewards/{own.function_id}/restore/")
    assert f"team:{own.function_id}" in list_reward_choices(team)
