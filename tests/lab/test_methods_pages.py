"""The catalogue of methods in the lab: search, facets, one method's page, formulas, and which runs used a method."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.teams.accounts.models import Team, User
from lab.training.catalog import card_words, effects
from lab.training.catalog.catalog import load_catalog
from lab.training.catalog.formulas import convert_formula
from lab.training.catalog.methods import FACETS, all_methods
from lab.training.runs import method_usage
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run
from lab.training.runs.schema_form import build_schema_fields
from lab.training.runs.spec_form import SpecForm
from trainers.contract.stacking import DEFAULT_BASES
from trainers.methods.base import HOOKS

ENTRIES = {entry["name"]: entry for entry in load_catalog().methods}
GRPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}}
DPO = {"task": {"name": "mini_gsm"}, "training": {"trainer": "dpo"}}


def launched(team: Team, user: User, spec: dict[str, Any], **stack: Any) -> Run:
    return launch_run(team, user, {**spec, **stack})


def shown(client: Client, query: str = "") -> list[str]:
    """Names of the methods on the page, in order."""
    response = client.get(f"/methods/{query}")
    assert response.status_code == 200
    return re.findall(r'<h3><a href="/methods/([^"]+)/"', response.content.decode())


# words


def test_every_hook_group_and_owned_thing_has_its_words() -> None:
    assert set(card_words.HOOKS) == set(HOOKS)
    for entry in ENTRIES.values():
        assert entry["group"] in card_words.GROUPS
        assert set(entry["owns"]) <= set(card_words.OWNS)
        assert set(entry["needs"]) <= set(card_words.NEEDS)
        assert set(entry["roles"]) <= set(card_words.THINGS)
        assert set(entry["roles"].values()) <= set(card_words.ROLES)
        assert {panel["kind"] for panel in entry["panels"]} <= set(card_words.PANELS)
        assert set(entry["trains"]) <= set(card_words.TRAINERS)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_formula_of_the_catalogue_becomes_mathml(name: str) -> None:
    for latex in ENTRIES[name]["formula"]:
        assert convert_formula(latex).mathml.startswith("<math"), latex


@pytest.mark.parametrize("latex", [r"\left( x", r"\frac", r"\text{<script>alert(1)</script>}", r"\text{<b>bold</b>}"])
def test_a_formula_that_cannot_be_converted_is_left_as_it_is_written(latex: str) -> None:
    assert (convert_formula(latex).latex, convert_formula(latex).mathml) == (latex, "")


def test_nothing_but_mathematics_comes_out_of_a_formula() -> None:
    assert "javascript" not in convert_formula(r"\href{javascript:alert(1)}{x} + 1").mathml
    assert convert_formula(r"x < y").mathml.count("<") == convert_formula(r"x = y").mathml.count("<")


@pytest.mark.parametrize("name", ENTRIES)
def test_every_parameter_can_be_set_in_a_form(name: str) -> None:
    fields = build_schema_fields(ENTRIES[name]["parameters"])
    assert set(fields) == set(ENTRIES[name]["parameters"].get("properties", {}))
    read = SpecForm(fields=fields).values
    for key, made in fields.items():
        assert made.help_text, key
        assert read[key] == made.initial or made.initial in (None, "")


# the catalogue


def test_the_pages_need_a_login(client: Client, db: None) -> None:
    for url in ("/methods/", "/methods/grpo/"):
        assert client.get(url).headers["Location"].startswith("/accounts/login/")


def test_every_method_is_listed_bases_first(as_owner: Client) -> None:
    names = shown(as_owner)
    assert sorted(names) == sorted(ENTRIES)
    groups = [ENTRIES[name]["group"] for name in names]
    assert groups == sorted(groups, key=list(card_words.GROUPS).index)


@pytest.mark.parametrize("text", ["2509.24261", "rs-grpo", "RISK-sensitive", "soft maximum", "diverse  rare"])
def test_the_search_looks_through_name_title_idea_and_arxiv_id(text: str, as_owner: Client) -> None:
    names = shown(as_owner, f"?q={text}")
    assert "rs-grpo" in names
    assert len(names) < len(ENTRIES)


def test_facets_narrow_what_is_shown_and_their_counts_are_true(as_owner: Client) -> None:
    assert shown(as_owner, "?trainer=dpo") == [method.name for method in all_methods(ENTRIES.values()) if "dpo" in method.trainers]
    assert set(shown(as_owner, "?hook=advantages&group=group")) == {
        name for name, entry in ENTRIES.items() if "advantages" in entry["hooks"] and entry["group"] == "group"
    }
    page = as_owner.get("/methods/?trainer=grpo").content.decode()
    found = re.findall(r'id="facet-(\w+)-([^"]+)" (aria-current="true")?.*?class="count">(\d+)<', page)
    assert {name for name, *_ in found} == set(FACETS)
    for name, value, chosen, count in found:
        query = f"?trainer=grpo&{name}={value}" if name != "trainer" else f"?trainer={value}"
        assert len(shown(as_owner, query)) == int(count), (name, value)
        assert bool(chosen) == ((name, value) == ("trainer", "grpo"))


def test_a_search_without_a_result_says_what_to_do(as_owner: Client) -> None:
    page = as_owner.get("/methods/?q=<b>nothing&hook=nonsense").content.decode()
    assert "No results" in page
    assert "&lt;b&gt;nothing" in page
    assert 'href="/methods/?q=%3Cb%3Enothing"' in page
    assert shown(as_owner, "?q=zzz") == []


def test_a_swap_gets_only_the_results_and_the_url_of_its_state(as_owner: Client) -> None:
    response = as_owner.get("/methods/?q=risk&hook=advantages&junk=1", headers={"HX-Request": "true"})
    page = response.content.decode()
    assert "<html" not in page
    assert 'id="methods"' in page
    assert response.headers["HX-Push-Url"] == "/methods/?q=risk&hook=advantages"


# one method


@pytest.mark.parametrize("name", ENTRIES)
def test_every_method_has_its_page(name: str, as_owner: Client) -> None:
    response = as_owner.get(f"/methods/{name}/")
    page, entry = response.content.decode(), ENTRIES[name]
    assert response.status_code == 200
    assert page.count("<math") == len(entry["formula"])
    for parameter in entry["parameters"].get("properties", {}):
        assert f">{parameter}</code>" in page
    for hook in entry["hooks"]:
        assert f'href="/methods/?hook={hook}"' in page
    if entry["arxiv"]:
        assert f'href="https://arxiv.org/abs/{entry["arxiv"]}" rel="noopener noreferrer"' in page


def test_a_method_that_does_not_exist_is_not_found(as_owner: Client) -> None:
    assert as_owner.get("/methods/ppo/").status_code == 404


def test_a_method_says_what_it_decides_and_offers_the_recipe_it_goes_into(as_owner: Client) -> None:
    page = as_owner.get("/methods/rs-grpo/").content.decode()
    assert "how advantages are computed" in page
    assert 'href="/launch/grpo/?add=rs-grpo#composer-0"' in page
    assert "Not measured yet" in page or "Measured" in page
    assert 'href="/launch/dpo/?add=ipo#composer-0"' in as_owner.get("/methods/ipo/").content.decode()


MEASURED = {
    "claim": "keeps entropy higher",
    "parent": "dr-grpo",
    "problem": "calendar",
    "changed": "its length",
    "state": "fresh",
    "seconds": 61.0,
    "step_time_ratio": 1.02,
    "seeds": 3,
    "comparisons": [
        {
            "quantity": "entropy",
            "by_construction": "the reward pays for it",
            "measured": "0.9 against 0.1",
            "verdict": "held",
            "p": "0.001",
            "holm": "0.04",
        },
        {"quantity": "accuracy", "measured": "0.7 against 0.5", "interval": "+0.2 [+0.1, +0.3]", "verdict": "not seen", "least": "0.02", "later": 1},
        {"quantity": "transfer", "least": "0.02", "verdict": ""},
    ],
}


@pytest.fixture
def write_effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(effects, "FILE", tmp_path / "effects.json")
    return lambda **rows: (tmp_path / "effects.json").write_text(json.dumps({name.replace("_", "-"): row for name, row in rows.items()}))


def test_the_measured_effect_is_shown(as_owner: Client, write_effects: Callable[..., None]) -> None:
    write_effects(rs_grpo=MEASURED, canon={"parent": "dapo", "step_time_ratio": 1.3, "state": "not measured yet", "seeds": 0, "comparisons": []})
    page = as_owner.get("/methods/rs-grpo/").content.decode()
    for text in ("keeps entropy higher", "0.9 against 0.1", "+0.2 [+0.1, +0.3]", "held", "1.02 × its parent", "1 min 1 s", "its length"):
        assert text in page
    assert "By construction: the reward pays for it." in page
    assert "among all comparisons 0.04" in page
    assert page.count("Not measured yet") == 1  # the transfer
    assert "stale" not in page.lower()
    assert "A step takes 1.30 × as long" in " ".join(as_owner.get("/methods/canon/").content.decode().split())
    listed = as_owner.get("/methods/?q=rs-grpo").content.decode()
    assert "effect not seen" in listed  # by what the method does not pay for
    assert "effect held" not in listed
    assert "Not measured yet" in as_owner.get("/methods/siren/").content.decode()


def test_a_quantity_that_moves_by_construction_says_so_where_nothing_else_was_measured(as_owner: Client, write_effects: Callable[..., None]) -> None:
    write_effects(rs_grpo=MEASURED | {"comparisons": MEASURED["comparisons"][:1]})
    assert "effect held by construction" in as_owner.get("/methods/?q=rs-grpo").content.decode()


def test_a_stale_effect_is_never_shown_as_fresh(as_owner: Client, write_effects: Callable[..., None]) -> None:
    write_effects(rs_grpo=MEASURED | {"state": "stale"})
    page = as_owner.get("/methods/rs-grpo/").content.decode()
    assert "Stale: the code of this method" in page
    assert "held, stale" in page
    assert ">held<" not in page
    assert "effect not seen, stale" in as_owner.get("/methods/?q=rs-grpo").content.decode()


# runs that used it


@pytest.fixture
def runs(team: Team, owner: User, stranger: User) -> dict[str, Run]:
    elsewhere = stranger.memberships.get().team
    risk = {"name": "rs-grpo", "config": {"risk": 3.0}}
    return {
        "plain": launched(team, owner, GRPO),
        "risk": launched(team, owner, GRPO, methods=[risk]),
        "gspo": launched(team, owner, GRPO, base={"name": "gspo"}, methods=[risk]),
        "dpo": launched(team, owner, DPO),
        "theirs": launched(elsewhere, stranger, GRPO, methods=[risk]),
    }


def test_runs_are_counted_by_what_they_stack_and_stand_on(runs: dict[str, Run], team: Team) -> None:
    assert method_usage.count_method_runs(team) == {"rs-grpo": 2, DEFAULT_BASES["grpo"]: 2, "gspo": 1, "dpo": 1}
    assert method_usage.list_latest_method_runs(team, "rs-grpo", 10) == [runs["gspo"], runs["risk"]]
    assert method_usage.list_latest_method_runs(team, DEFAULT_BASES["grpo"], 10) == [runs["risk"], runs["plain"]]
    assert method_usage.list_latest_method_runs(team, "rs-grpo", 1) == [runs["gspo"]]


def test_a_methods_page_lists_the_teams_runs_and_no_others(runs: dict[str, Run], as_owner: Client, as_stranger: Client) -> None:
    page = as_owner.get("/methods/rs-grpo/").content.decode()
    assert f'href="/runs/{runs["risk"].pk}/"' in page
    assert f'href="/runs/{runs["gspo"].pk}/"' in page
    assert str(runs["theirs"].pk) not in page
    assert str(runs["plain"].pk) not in page
    assert str(runs["risk"].pk) not in as_stranger.get("/methods/rs-grpo/").content.decode()


def test_the_list_of_runs_can_be_filtered_by_method(runs: dict[str, Run], as_owner: Client) -> None:
    def listed(query: str) -> set[str]:
        return set(re.findall(r'data-run="([^"]+)"', as_owner.get(f"/runs/{query}").content.decode()))

    assert listed("?method=rs-grpo") == {str(runs["risk"].pk), str(runs["gspo"].pk)}
    assert listed("?method=dpo") == {str(runs["dpo"].pk)}
    assert listed("?method=rs-grpo&q=gspo") == set()
    assert "Method: rs-grpo" in as_owner.get("/runs/?method=rs-grpo").content.decode()


def test_the_pages_take_the_same_queries_however_many_runs_there_are(
    runs: dict[str, Run], as_owner: Client, team: Team, owner: User, django_assert_max_num_queries: Any
) -> None:
    for _ in range(12):
        launched(team, owner, GRPO, methods=[{"name": "siren"}])
    as_owner.get("/methods/")  # the first request of a session is entered in the person's list of sessions
    with django_assert_max_num_queries(6):
        as_owner.get("/methods/")
    with django_assert_max_num_queries(7):
        as_owner.get("/methods/siren/")
