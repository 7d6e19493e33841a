"""The map of systems: none of the 162 is missing, what is here is found by machine, facets, search, and starting from one."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client

from lab.teams.accounts.models import Role, Team
from lab.training.ablations.presets.registry import PRESETS
from lab.training.catalog import card_words, effects, system_words
from lab.training.catalog.catalog import Catalog, load_catalog
from lab.training.catalog.facets import build_facet_choices, read_facet_query
from lab.training.catalog.methods import Method
from lab.training.catalog.system_map import FACETS, PLACES, MappedSystem, SystemPlace, build_system_map
from lab.training.catalog.systems import SEARCH_WORLDS, PublishedSystem, build_system, load_systems
from lab.training.runs.views.systems import find_start_url
from tests.conftest import make_member
from trainers.methods.base import HOOKS

SYSTEMS = load_systems()
MAPPED = {one.system.id: one for one in build_system_map(SYSTEMS.values(), load_catalog(), {})}


def list_cards(client: Client, query: str = "") -> list[str]:
    """Ids of the systems on the page, in order."""
    response = client.get(f"/systems/{query}")
    assert response.status_code == 200
    return re.findall(r'<li class="card method-card system-card" id="([^"]+)"', response.content.decode())


# the list


def test_none_of_the_162_systems_is_missing() -> None:
    assert len(SYSTEMS) == 162
    assert hashlib.sha256("\n".join(sorted(SYSTEMS)).encode()).hexdigest()[:16] == "7717ba82e5bbc292", "an id was lost or renamed"


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_has_paper_idea_and_sentence_in_known_words(name: str) -> None:
    one = MAPPED[name]
    assert one.system.paper
    assert re.fullmatch(r"\d{4}\.\d{5}", one.system.arxiv)
    assert one.about.endswith(".")
    assert one.system.ideas
    for facet, (_, values_of, words) in FACETS.items():
        if facet != "world":
            assert set(values_of(one)) <= set(words), facet
    assert one.changes or one.system.listed_only or one.state == "here"


def test_no_two_systems_have_the_same_paper() -> None:
    assert len({system.arxiv for system in SYSTEMS.values()}) == len(SYSTEMS)


def test_what_is_not_here_says_what_it_is_to_become_and_why_it_is_only_listed() -> None:
    for one in MAPPED.values():
        if one.state != "here":
            assert one.system.kind, one.system.id
        assert bool(one.system.reason) == one.system.listed_only
        assert one.system.outside or not one.system.listed_only
        assert bool(one.system.called) == (one.system.outside and not one.system.listed_only), "an idea of it is found by what it is called"
    assert [name for name, one in MAPPED.items() if one.state == "listed"] == ["sparse-misspecified-bandits"]


def test_every_system_outside_the_field_is_found_or_listed_with_its_reason() -> None:
    """Twelve: ideas of them are methods under names of ours, worlds, or a sampler of sweeps."""
    outside = {name: one for name, one in MAPPED.items() if one.system.outside}
    found = {name: [method.name for method in one.methods] for name, one in outside.items() if one.methods}
    assert found == {
        "abc-rl": ["prior-by-distance"],
        "alphagen": ["marginal-gain"],
        "flickerfusion": ["context-drop"],
        "iwocs": ["worst-variant"],
        "jowa": ["read-the-world"],
        "revibranch": ["shared-out-reward"],
        "rl-quantum-compiler": ["cost-to-go"],
    }
    places = {name: one.place.url for name, one in outside.items() if one.place}
    assert places == {
        "guide-dag": "/worlds/causal_graphs/",
        "hhnas-am": "/sweeps/new/?recipe=grpo&sampler=mutations",
        "mallocmuzero": "/worlds/placement/",
        "paccmann-rl-sarscov2": "/worlds/molecules/",
    }
    assert set(outside) - set(found) - set(places) == {"sparse-misspecified-bandits"}
    assert len(outside) == 12


def test_every_hook_changes_something_that_has_a_word_or_only_reads() -> None:
    assert set(system_words.CHANGED_BY) == set(HOOKS)
    assert set(system_words.CHANGED_BY.values()) - {""} <= set(system_words.CHANGES)


# found by machine


def test_methods_of_the_catalogue_are_found_by_name_and_have_the_paper_of_their_system() -> None:
    entries = load_catalog().methods_by_name
    found = {name for name, one in MAPPED.items() if one.named}
    assert found == set(SYSTEMS) & set(entries)
    assert len(found) > 100
    assert {name for name in found if entries[name]["arxiv"] != SYSTEMS[name].arxiv} == set()


def make_entry(name: str, **changes: Any) -> dict[str, Any]:
    entry = load_catalog().method("rs-grpo")
    return {**entry, "name": name, "arxiv": "", **changes}


def map_one(system: PublishedSystem, *entries: dict[str, Any], recipes: tuple[str, ...] = ()) -> MappedSystem:
    catalog = Catalog({"methods": list(entries), "recipes": [{"name": name, "title": name} for name in recipes]})
    [one] = build_system_map([system], catalog, {})
    return one


def test_a_system_is_here_as_a_method_of_its_name_a_citing_method_a_recipe_or_a_registered_page() -> None:
    system = PublishedSystem("after", "A paper", "2401.00001", ("credit",), kind="method", about="It shares out.", outside=True)
    assert map_one(system).state == "planned"
    assert map_one(system, make_entry("other")).state == "planned"

    named = map_one(system, make_entry("after"))
    assert (named.state, named.about) == ("here", named.methods[0].data["idea"])

    citing = map_one(system, make_entry("shared-out", arxiv="2401.00001", worlds=["rooms"]))
    assert (citing.state, citing.named, citing.about, citing.worlds) == ("here", None, "It shares out.", ["rooms"])

    called = replace(system, called="SharedOut")
    own = make_entry("shared-out", source="our own, after the reward of SharedOut", arxiv="")
    assert [method.name for method in map_one(called, make_entry("other", source="ours"), own).methods] == ["shared-out"]
    assert map_one(system, own).state == "planned"

    assert map_one(system, recipes=("after",)).state == "here"
    assert "after" not in PLACES
    assert MAPPED["crosslingual-rl"].place == SystemPlace("Start the grid", "grid-new", "preset=crosslingual-rl")
    assert {name for name, one in MAPPED.items() if one.place and one.place.route == "grid-new"} == PRESETS.keys() - {"semanticshield"}  # a recipe
    tools = {
        "skyreels-v2",
        "advchain",
        "fin-ally",
        "bmgq",
        "socratic-geo",
    }
    assert {name for name, one in MAPPED.items() if one.place and one.place.route == "datasets"} == tools
    assert MAPPED["survey-agentic-search-rl"].place == SystemPlace("Filters of search agents", "systems", "idea=search")


@pytest.mark.parametrize(
    ("changes", "kind", "changed"),
    [
        ({"hooks": ["pair_loss", "data", "observe"]}, "method", ["data", "loss"]),
        ({"group": "bases", "trainer": "grpo", "hooks": ["rollout"]}, "base", ["rollouts"]),
        ({"group": "analysis", "hooks": ["observe", "gradients"]}, "analysis", ["nothing"]),
        ({"trains": ["procedure"], "hooks": ["rollout"]}, "procedure", ["decoding"]),
    ],
)
def test_kind_and_what_it_changes_follow_from_the_catalogue(changes: dict[str, Any], kind: str, changed: list[str]) -> None:
    one = map_one(PublishedSystem("it", "A paper", "2401.00001", ("credit",), kind="method"), make_entry("it", **changes))
    assert (one.kind, one.changes) == (kind, changed)


def test_evidence_is_the_verdict_of_the_first_quantity_that_the_method_does_not_pay_for() -> None:
    def evidence(**effect: Any) -> str:
        measured = effects.read_effect({"state": "fresh", **effect})
        return MappedSystem(SYSTEMS["rs-grpo"], (Method(load_catalog().method("rs-grpo")),), effect=measured).evidence

    paid = {"quantity": "entropy", "by_construction": "it pays", "verdict": "held"}
    assert evidence() == "unmeasured"
    assert evidence(comparisons=[paid]) == "by-construction"
    assert evidence(comparisons=[paid, {"quantity": "accuracy", "verdict": "opposite, negligible"}]) == "opposite-negligible"
    assert evidence(comparisons=[paid], state="stale") == "stale"
    assert MappedSystem(SYSTEMS["ssrl"]).evidence == ""
    assert {verdict.replace(", ", "-").replace(" ", "-") for verdict in effects.TONES} <= set(system_words.EVIDENCE)


# search agents


def test_every_search_agent_has_all_three_tags() -> None:
    """What trains in a world with something to look up, and what is listed under search; each with a role, a way of training and a scope."""
    agents = {name for name, one in MAPPED.items() if "search" in one.system.ideas}
    agents |= {entry["name"] for entry in load_catalog().methods if SEARCH_WORLDS & set(entry.get("worlds", ())) and entry["name"] in SYSTEMS}
    assert len(agents) > 20
    for name in agents:
        tags = SYSTEMS[name].search
        assert tags, f"{name} has no tags in systems.toml"
        assert tags.role in system_words.ROLES
        assert tags.how
        assert set(tags.how) <= set(system_words.HOWS)
        assert tags.scope in system_words.SCOPES


def test_worlds_with_a_search_tool_count_as_search() -> None:
    assert {task["name"] for task in load_catalog().tasks if "search" in {tool["name"] for tool in task.get("tools", ())}} <= SEARCH_WORLDS
    assert {task["name"] for task in load_catalog().tasks} >= SEARCH_WORLDS


def test_zerosearch_is_sorted_as_the_survey_would() -> None:
    tags = SYSTEMS["zerosearch"].search
    assert tags
    assert tags.words == [
        ("Role of RL", "Retrieval control"),
        ("Trained by", "SFT cold start, Simulated environment, Curriculum"),
        ("Scope", "Agent"),
    ]


def test_tags_lacking_one_of_the_three_are_refused() -> None:
    with pytest.raises(KeyError):
        build_system("it", {"paper": "A paper", "arxiv": "", "ideas": [], "search": {"role": "control", "scope": "agent"}})


def test_the_methods_page_can_be_filtered_by_the_tags(as_owner: Client) -> None:
    page = as_owner.get("/methods/?role=control&how=simulated&scope=agent").content.decode()
    assert re.findall(r'<h3><a href="/methods/([^"]+)/"', page) == ["zerosearch"]


def test_a_methods_page_names_its_paper_and_its_tags_and_leads_to_the_map(as_owner: Client) -> None:
    page = as_owner.get("/methods/zerosearch/").content.decode()
    assert f'<a href="/systems/?q=zerosearch">{SYSTEMS["zerosearch"].paper}</a>' in page
    assert "Retrieval control" in page
    assert "/systems/?q=" not in as_owner.get("/methods/dr-grpo/").content.decode()


# the page


@pytest.mark.parametrize("address", ["", "state=here", "kind=method&idea=search", "q=retrieval&trainer=grpo"])
def test_counts_of_facets_are_what_their_links_leave(address: str) -> None:
    query = read_facet_query(QueryDict(address), FACETS)
    cards = list(MAPPED.values())
    for name, _, choices in build_facet_choices(cards, FACETS, query):
        for choice in choices:
            linked = read_facet_query(QueryDict(choice.url.removeprefix("?")), FACETS)
            assert (linked.chosen.get(name, "") == "") == choice.chosen
            chosen = linked if not choice.chosen else query
            assert sum(chosen.matches(card, FACETS) for card in cards) == choice.count, (name, choice.value)
            assert re.fullmatch(r"[\w-]+", choice.value), "it is part of an element's id"


def test_the_page_needs_a_login(client: Client, db: None) -> None:
    assert client.get("/systems/").headers["Location"].startswith("/accounts/login/")


def test_the_page_shows_every_system_with_its_paper(as_owner: Client) -> None:
    assert sorted(list_cards(as_owner)) == sorted(SYSTEMS)
    page = as_owner.get("/systems/").content.decode()
    for system in SYSTEMS.values():
        assert f'href="https://arxiv.org/abs/{system.arxiv}" rel="noopener noreferrer"' in page
    assert page.count("Listed only: not about language models.") == 1
    assert "162 systems" in page


def test_search_and_facets_are_in_the_address(as_owner: Client) -> None:
    assert list_cards(as_owner, "?state=listed") == [name for name, one in MAPPED.items() if one.state == "listed"]
    assert "search-r2" in list_cards(as_owner, "?q=actor-refiner")
    assert list_cards(as_owner, "?q=2510.16724") == ["survey-agentic-search-rl"]
    assert list_cards(as_owner, "?kind=base") == [name for name, one in MAPPED.items() if one.kind == "base"]
    assert "No results" in as_owner.get("/systems/?q=<b>nothing&idea=nonsense").content.decode()
    page = as_owner.get("/systems/?idea=search").content.decode()
    assert re.findall(r'<h2 class="group-title">([^<]+)<', page) == ["Search agents"]


def test_a_swap_gets_only_the_results_and_the_address_of_its_state(as_owner: Client) -> None:
    response = as_owner.get("/systems/?q=search&state=planned&junk=1", headers={"HX-Request": "true"})
    page = response.content.decode()
    assert "<html" not in page
    assert 'id="systems"' in page
    assert response.headers["HX-Push-Url"] == "/systems/?q=search&state=planned"


def test_the_measured_effect_is_shown_with_its_size(as_owner: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = {"quantity": "held-out accuracy", "verdict": "held", "interval": "+0.2 [+0.1, +0.3]", "measured": "0.7 against 0.5"}
    (tmp_path / "effects.json").write_text(json.dumps({"rs-grpo": {"state": "fresh", "comparisons": [comparison]}}))
    monkeypatch.setattr(effects, "FILE", tmp_path / "effects.json")
    assert list_cards(as_owner, "?effect=held") == ["rs-grpo"]
    page = as_owner.get("/systems/?effect=held").content.decode()
    assert 'class="badge good" title="held-out accuracy: +0.2 [+0.1, +0.3]"' in page
    assert "effect: held" in page


def test_what_was_measured_of_a_system_without_a_method_is_told_on_the_map(as_owner: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = {"quantity": "answers after an error", "verdict": "held", "interval": "+0.2 [+0.1, +0.3]", "measured": "0.7 against 0.5"}
    (tmp_path / "effects.json").write_text(json.dumps({"advchain": {"state": "fresh", "claim": "It recovers.", "comparisons": [comparison]}}))
    monkeypatch.setattr(effects, "FILE", tmp_path / "effects.json")
    assert list_cards(as_owner, "?effect=held") == ["advchain"]
    page = as_owner.get("/systems/").content.decode()
    assert page.count("What was measured") == 1
    assert "<dd>It recovers.</dd>" in page
    assert "Measured: 0.7 against 0.5; difference +0.2 [+0.1, +0.3]" in page
    (tmp_path / "effects.json").write_text(json.dumps({"advchain": {"state": "not measured yet", "comparisons": [{"quantity": "answers"}]}}))
    assert "advchain" in list_cards(as_owner, "?effect=unmeasured")
    assert "What was measured" not in as_owner.get("/systems/?q=advchain").content.decode()


def test_everything_that_is_here_can_be_started_from_or_opened() -> None:
    for name, one in MAPPED.items():
        assert (one.state == "here") == bool(find_start_url(load_catalog(), one) or one.place), name


@pytest.mark.parametrize("name", ["rs-grpo", "search-r2", "dpo-pop", "remit", "coot", "rep-geometry-rankme", "diffucoder-coupled-grpo"])
def test_starting_from_a_system_builds_a_recipe_with_it(name: str, as_owner: Client) -> None:
    page = as_owner.get(f"/systems/?q={name}").content.decode()
    [url] = re.findall(rf'href="(/launch/[^"]+)" aria-label="Start from this: {name}"', page)
    [spec] = as_owner.get(url.replace("&amp;", "&")).context["form"].specs()
    assert name in {choice["name"] for choice in (*spec.get("methods", ()), *([spec["base"]] if spec.get("base") else ()))}


def test_who_may_not_launch_is_offered_no_start(client: Client, team: Team) -> None:
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    page = client.get("/systems/?q=rs-grpo").content.decode()
    assert 'id="rs-grpo"' in page
    assert "Start from this" not in page


def test_the_palette_finds_systems_that_are_no_methods(as_owner: Client) -> None:
    found = as_owner.get("/palette/", {"q": "guide-dag"}).json()["found"]
    assert [(one["kind"], one["url"]) for one in found] == [("system", "/systems/?q=guide-dag")]
    assert "system" not in {one["kind"] for one in as_owner.get("/palette/", {"q": "rs-grpo"}).json()["found"]}


def test_formula_words_are_those_of_the_methods_page() -> None:
    assert FACETS["provenance"][2] is card_words.PROVENANCES
