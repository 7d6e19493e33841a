"""Presets of grids: each is a form that can be launched as it stands."""

import pytest
from django.test import Client

from lab.teams.accounts.models import Team, User
from lab.training.ablations.grid_plan import examine_grid_plan, read_grid_plan
from lab.training.ablations.models import Ablation
from lab.training.ablations.presets.registry import PRESETS, write_preset_form
from tests.lab.html_forms import form_values


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_the_trainers_have_nothing_against_any_cell_of_a_preset(preset, team: Team, owner: User) -> None:
    plan = read_grid_plan(team, owner, write_preset_form(preset.name))
    assert plan is not None
    examined = examine_grid_plan(plan, preflight=True)
    assert examined.problem_texts == []
    assert all(preset.name == "vb-vs-vf" and "training.max_completion_length" in warning for warning in examined.warnings), "its budgets cut answers"
    assert [factor.as_json() for factor in plan.grid.list_factors()] == [factor.as_json() for factor in preset.factors]
    assert plan.grid.read_matched_budget() == preset.budget


def test_a_preset_fills_the_form_which_queues_its_runs(as_owner: Client) -> None:
    starts = as_owner.get("/ablations/grid/new/").content.decode()
    assert 'href="/ablations/grid/new/?preset=crosslingual-rl"' in starts
    page = as_owner.get("/ablations/grid/new/", {"preset": "crosslingual-rl"}).content.decode()
    assert "20 runs" in page
    filled = form_values(page, "data-grid-form")
    levels = {f"factor.{place}.levels": f"{level}" for place, level in enumerate(levels_of("crosslingual-rl"))}
    answer = as_owner.post("/ablations/grid/new/", {**filled, **levels, "seeds": "1", "act": "launch"})
    assert answer.status_code == 302, answer.content.decode()
    grid = Ablation.across_teams.get()
    specs = {member.variant: member.run.spec for member in grid.members.select_related("run")}
    assert set(specs) == {f"{method} · {language}" for method in ("SFT", "GRPO") for language in ("english", "esperanto")}
    for variant, spec in specs.items():
        method, language = variant.split(" · ")
        assert (spec["training"]["trainer"], spec["training"]["max_steps"]) == (method.lower(), 60)
        assert spec["task"] == {**spec["task"], "name": "two_languages", "options": {"language": language}}
    assert as_owner.get("/ablations/grid/new/", {"preset": "none"}).status_code == 404


def levels_of(name: str) -> list[str]:
    """Text areas, which the reader of forms leaves out."""
    form = write_preset_form(name)
    return [str(form[f"factor.{place}.levels"]) for place in range(3)]
