"""Charts that methods declare: which metrics they take, what is left over, and what the run's pages say of the stack."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team, User
from lab.training.runs import spec_reading
from lab.training.runs.charts import build_chart_panels
from lab.training.runs.launch import launch_run
from lab.training.runs.method_panels import BINS
from lab.training.runs.models import Run
from lab.training.runs.stack import Stack, build_method_chips, stack_of
from tests.lab.supervisor.spools import measured, started, write

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<img src=x onerror=alert(1)>"


def panel(title: str, *series: str, **fields: Any) -> dict[str, Any]:
    named = [{"metric": name, "label": "", "dashed": False} for name in series]
    blank = {"kind": "lines", "unit": "", "help": "", "band": None, "phase": "", "phase_names": [], "low": None, "high": None}
    return {"title": title, "series": named, **blank, **fields}


def entry(name: str, *declared: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "title": name.upper(), "idea": "", "panels": list(declared)}


def of_methods(names: list[str], *entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in build_chart_panels(names, "grpo", entries) if one["method"]]


def test_declared_panels_stand_below_the_others_method_by_method_before_any_point_came() -> None:
    found = build_chart_panels(["reward", "loss"], "grpo", [entry("a", panel("A1", "a/x"), panel("A2", "a/y")), entry("b", panel("B", "b/x"))])
    assert [one["title"] for one in found] == ["Reward", "Loss", "A1", "A2", "B"]
    assert [one["section"] for one in found[2:]] == ["method:a", "method:a", "method:b"]


def test_a_methods_metrics_are_not_among_the_general_ones_and_none_is_lost() -> None:
    names = ["reward", "a/x", "a/y", "a/deep/z", "ab/x", "entropy"]
    found = build_chart_panels(names, "grpo", [entry("a", panel("A", "a/x", "entropy", "heldout/accuracy"))])
    general = [trace["metric"] for one in found if not one["method"] for trace in one["traces"]]
    assert sorted(general) == ["ab/x", "entropy", "reward"]
    (more,) = (one for one in found if one["folded"] and one["method"])
    assert [(trace["metric"], trace["label"]) for trace in more["traces"]] == [("a/deep/z", "deep/z"), ("a/y", "y")]


def test_a_panel_may_name_any_metric_of_the_run() -> None:
    (found,) = of_methods(["entropy"], entry("a", panel("A", "entropy", "a/x")))
    assert found["metrics"] == ["entropy", "a/x"]


def test_a_band_and_a_phase_belong_to_their_panel() -> None:
    names = ["a/low", "a/high", "a/phase", "a/x"]
    (found,) = of_methods(names, entry("a", panel("A", "a/x", kind="phases", band=["a/low", "a/high"], phase="a/phase", phase_names=["one", "two"])))
    assert found["metrics"] == ["a/x", "a/low", "a/high", "a/phase"]
    assert (found["kind"], found["phase_names"]) == ("phases", ["one", "two"])


def test_a_histogram_is_its_bins_called_by_their_middles_where_the_range_is_known() -> None:
    names = [f"a/w/{place:02d}" for place in range(BINS)]
    numbered, ranged = of_methods(names, entry("a", panel("N", "a/w", kind="histogram"), panel("R", "a/w", kind="histogram", low=0.0, high=2.0)))
    assert numbered["metrics"] == ranged["metrics"] == names
    assert numbered["traces"][3]["label"] == "bin 3"
    assert [ranged["traces"][place]["label"] for place in (0, 10, 19)] == ["0.05", "1.05", "1.95"]
    assert len(of_methods(names, entry("a", panel("N", "a/w", kind="histogram")))) == 1


def test_bins_are_as_many_as_methods_log() -> None:
    from trainers.methods import base

    assert base.BINS == BINS


def test_many_metrics_that_nobody_declares_do_not_share_one_chart() -> None:
    found = of_methods([f"a/m{number:02d}" for number in range(20)], entry("a"))
    assert [len(one["traces"]) for one in found] == [8, 8, 4]
    assert all(one["folded"] for one in found)


def test_ids_are_unique_and_colours_are_those_of_the_stylesheet() -> None:
    declared = [panel(f"P{number}", *(f"kimi-k2.5/{number}/{line}" for line in range(12))) for number in range(3)]
    found = of_methods(["kimi-k2.5/left"], entry("kimi-k2.5", *declared))
    ids = [one["id"] for one in found]
    assert len(set(ids)) == len(ids)
    assert all(name.replace("-", "").isalnum() for name in ids)
    assert {trace["color"] for one in found for trace in one["traces"]} <= set(range(1, 9))


def test_every_panel_of_the_catalogue_can_be_described() -> None:
    entries = json.loads((ROOT / "trainers/catalog.json").read_text())["methods"]
    found = build_chart_panels([], "grpo", entries)
    assert len(found) == sum(len(entry["panels"]) for entry in entries) > 0
    assert {one["kind"] for one in found} <= {"lines", "stack", "histogram", "phases"}
    assert all(one["metrics"] for one in found)


MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(team: Team, owner: User) -> MakeRun:
    def make(methods: tuple[str, ...] = ("siren", "rs-grpo"), base: str | None = "dr-grpo", name: str = "stacked") -> Run:
        spec: dict[str, Any] = {"recipe": "grpo", "task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}}
        spec |= {"base": base and {"name": base}, "methods": [{"name": method} for method in methods]}
        return launch_run(team, owner, spec, name)

    return make


def test_a_run_page_gets_the_panels_of_its_methods_with_their_points(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run()
    write(run.folder, [started(), measured(1, values={"reward": 0.5, "rs-grpo/solve_rate": 0.25, "rs-grpo/unheard/of": 1.0})])
    ingest_spool(run)
    found = as_owner.get(f"/runs/{run.pk}/metrics.json").json()
    assert [method["name"] for method in found["methods"]] == ["dr-grpo", "siren", "rs-grpo"]
    assert found["methods"][2]["url"] == "/methods/rs-grpo/"
    assert found["series"]["rs-grpo/solve_rate"]["values"] == [0.25]
    drawn = {metric for one in found["panels"] for metric in one["metrics"]}
    assert {"rs-grpo/solve_rate", "rs-grpo/unheard/of"} <= drawn
    assert "Other" not in {one["section"] for one in found["panels"]}


def test_a_method_the_catalogue_does_not_know_still_shows_what_it_logged(as_owner: Client, make_run: MakeRun) -> None:
    run = make_run(methods=(HOSTILE,))
    write(run.folder, [started(), measured(1, values={f"{HOSTILE}/x": 0.5})])
    ingest_spool(run)
    found = as_owner.get(f"/runs/{run.pk}/metrics.json").json()
    assert found["methods"][1] == {"name": HOSTILE, "title": HOSTILE, "idea": "", "url": ""}
    assert [one["metrics"] for one in found["panels"]] == [[f"{HOSTILE}/x"]]
    assert HOSTILE not in as_owner.get(f"/runs/{run.pk}/").content.decode()
    assert HOSTILE not in as_owner.get("/runs/").content.decode()


def test_the_header_shows_the_stack_in_its_order(as_owner: Client, make_run: MakeRun) -> None:
    page = as_owner.get(f"/runs/{make_run().pk}/").content.decode()
    places = [page.index(f'href="/methods/{name}/"') for name in ("dr-grpo", "siren", "rs-grpo")]
    assert places == sorted(places)


def test_the_config_shows_methods_one_by_one_with_their_parameters(make_run: MakeRun, team: Team, owner: User, as_owner: Client) -> None:
    run = make_run()
    spec = {**run.spec, "methods": [{"name": "rs-grpo", "config": {"risk": 4.0}}, {"name": "kimi-k2.5", "config": {}}]}
    values = dict(spec_reading.group_spec_values(spec, {}))["Methods"]
    assert [(value.name, value.text) for value in values] == [
        ("base", "dr-grpo"),
        ("rs-grpo.risk", "4.0"),
        ("kimi-k2.5", "default parameters"),
    ]
    usual, _ = spec_reading.find_usual_values(run)
    marked = [(value.name, value.usual_text) for value in dict(spec_reading.group_spec_values(spec, usual))["Methods"] if value.differs]
    assert marked == [("base", "default dapo"), ("rs-grpo.risk", "not in the recipe"), ("kimi-k2.5", "not in the recipe")]
    plain = dict(spec_reading.group_spec_values({**run.spec, "base": None, "methods": []}, usual))["Methods"]
    assert [(value.name, value.text, value.differs) for value in plain] == [("base", "dapo", False), ("methods", "[]", False)]
    assert [change.path for change in spec_reading.diff_launched_specs(run.spec, spec)] == [
        "methods.kimi-k2.5",
        "methods.rs-grpo",
        "methods.rs-grpo.risk",
        "methods.siren",
    ]
    assert "<h2>Methods</h2>" in as_owner.get(f"/runs/{run.pk}/config/").content.decode()


def test_the_list_shows_stacks_and_is_filtered_by_a_method_or_a_base(as_owner: Client, make_run: MakeRun) -> None:
    make_run(name="with both")
    make_run(methods=("rs-grpo",), base=None, name="on the default")
    make_run(methods=(), base=None, name="plain")

    def names(query: str) -> set[str]:
        page = as_owner.get(f"/runs/?{query}", headers={"HX-Request": "true"}).content.decode()
        return {name for name in ("with both", "on the default", "plain") if name in page}

    assert names("method=siren") == {"with both"}
    assert names("method=rs-grpo") == {"with both", "on the default"}
    assert names("method=dr-grpo") == {"with both"}
    assert names("method=dapo") == {"on the default", "plain"}
    assert names("method=nothing") == set()
    page = as_owner.get("/runs/?method=nothing").content.decode()
    assert "<option selected>nothing</option>" in page
    assert '?method=siren" title="Runs with' in as_owner.get("/runs/").content.decode()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, Stack("", ())),
        ({"training": {"trainer": "dpo"}}, Stack("dpo", ())),
        ({"training": {"trainer": "grpo"}, "base": None, "methods": [{"name": "siren"}]}, Stack("dapo", ("siren",))),
        ({"training": "?", "base": "?", "methods": ["?", {}, {"name": "x"}]}, Stack("", ("x",))),
    ],
)
def test_the_stack_of_any_stored_spec_can_be_read(spec: dict[str, Any], expected: Stack) -> None:
    assert stack_of(spec) == expected
    assert [chip.name for chip in build_method_chips(expected)] == [*([expected.base] if expected.base else []), *expected.methods]
