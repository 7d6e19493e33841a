"""Which helps here: findings lead to methods whose measured effect fits, and a proposal to the ablation that would tell."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from lab.rollouts.doctor.examine import sorted_out
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.remedies import NO_RISE, REMEDIES, SETTINGS_ONLY, Remedies, list_signals, propose_methods
from lab.rollouts.doctor.rules import RULES
from lab.teams.accounts.models import Role, Team, User
from lab.training.ablations.models import Ablation
from lab.training.catalog import effects, system_words
from lab.training.runs.launch import launch_run
from lab.training.runs.metrics import Series
from lab.training.runs.models import Run
from tests.conftest import make_member
from tests.lab.html_forms import form_values
from tests.lab.supervisor.spools import measured, started, store

SPEC = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "max_steps": 20}, "base": {"name": "dr-grpo"}, "methods": [{"name": "siren"}]}
STEPS = np.arange(1, 101)
FLAT_GROUPS = {"frac_reward_zero_std": np.ones(100), "reward": np.zeros(100)}
NO_ENTROPY = {"entropy": np.geomspace(0.9, 0.01, 100)}


def make_comparison(quantity: str, direction: str = "lower", verdict: str = "held", **more: Any) -> dict[str, Any]:
    return {"quantity": quantity, "direction": direction, "verdict": verdict, "interval": "-0.3 [-0.4, -0.2]", "measured": "0.1 against 0.4", **more}


def make_effect(*comparisons: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"state": "fresh", "parent": "dr-grpo", "problem": "a small problem", "seeds": 3, "comparisons": list(comparisons), **more}


ALIKE = make_comparison("share of groups whose rewards are all equal")
ENTROPY = make_comparison("entropy of answers (nats)", "higher")


@pytest.fixture
def write_effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(effects, "FILE", tmp_path / "effects.json")
    return lambda **rows: (tmp_path / "effects.json").write_text(json.dumps({name.replace("_", "-"): row for name, row in rows.items()}))


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    return launch_run(team, owner, SPEC, "stacked")


def see(run: Run, **curves: Any) -> Remedies:
    found = {name.replace("__", "/"): Series(name, STEPS[: len(values)], np.asarray(values)) for name, values in curves.items()}
    facts = RunFacts("grpo", found, heldout_prompts=256)
    return propose_methods(run, facts, sorted_out(run, facts))


def name_proposals(remedies: Remedies) -> list[str]:
    return [proposal.method.name for proposal in remedies.proposals]


# the table


def test_every_check_has_a_remedy_or_is_cured_by_settings() -> None:
    assert {rule.name for rule in RULES} == (set(REMEDIES) - {NO_RISE}) | SETTINGS_ONLY
    assert not SETTINGS_ONLY & set(REMEDIES)
    assert {remedy.idea for remedy in REMEDIES.values()} <= set(system_words.IDEAS)


def test_every_quantity_of_the_table_is_one_that_is_measured() -> None:
    quantities = {(one.quantity, one.direction) for effect in effects.load_method_effects().values() for one in effect.comparisons}
    for name, remedy in REMEDIES.items():
        for words, direction in remedy.effects:
            assert any(words in quantity and direction == way for quantity, way in quantities), (name, words, direction)


# proposals


def test_a_finding_leads_to_the_method_with_the_fitting_effect(run: Run, write_effects: Callable[..., None]) -> None:
    write_effects(clpo=make_effect(ALIKE), rs_grpo=make_effect(ENTROPY))
    [proposal] = see(run, **FLAT_GROUPS).proposals
    assert (proposal.method.name, proposal.signal.name, proposal.comparison.interval) == ("clpo", "zero-variance", "-0.3 [-0.4, -0.2]")
    assert name_proposals(see(run, **NO_ENTROPY)) == ["rs-grpo"]
    assert name_proposals(see(run, entropy=np.full(100, 0.9))) == []


@pytest.mark.parametrize(
    "row",
    [
        {"rs_grpo": make_effect(make_comparison("entropy", "higher", "not seen"))},
        {"rs_grpo": make_effect(make_comparison("entropy", "higher", "held, negligible"))},
        {"rs_grpo": make_effect(make_comparison("entropy", "higher", "opposite"))},
        {"rs_grpo": make_effect(make_comparison("entropy", "lower"))},
        {"rs_grpo": make_effect(make_comparison("entropy", "higher", ""))},
        {"siren": make_effect(ENTROPY)},  # is in the recipe
        {"gspo": make_effect(ENTROPY)},  # a base
        {"dpo_pop": make_effect(ENTROPY)},  # another trainer
        {"search_r2": make_effect(ENTROPY)},  # another world
        {"nobody": make_effect(ENTROPY)},
    ],
)
def test_what_did_not_hold_or_cannot_be_stacked_is_not_proposed(row: dict[str, Any], run: Run, write_effects: Callable[..., None]) -> None:
    write_effects(**row)
    remedies = see(run, **NO_ENTROPY)
    assert remedies.proposals == []
    assert [signal.name for signal in remedies.unanswered] == ["entropy-collapse"]


def test_what_costs_nothing_and_is_fresh_stands_first(run: Run, write_effects: Callable[..., None]) -> None:
    paid = make_comparison("entropy", "higher", by_construction="the reward pays for it")
    loss = make_comparison("held-out accuracy", "higher", "opposite")
    write_effects(
        evol_rl=make_effect(ENTROPY, loss), rover=make_effect(ENTROPY, state="stale"), canon=make_effect(paid, loss | {"by_construction": "so it is"})
    )
    proposals = see(run, **NO_ENTROPY).proposals
    assert [proposal.method.name for proposal in proposals] == ["canon", "rover", "evol-rl"]
    assert [bool(proposal.cost) for proposal in proposals] == [False, False, True]


def test_at_most_three_are_proposed_and_each_finding_gets_its_best_first(run: Run, write_effects: Callable[..., None]) -> None:
    names = ("rs_grpo", "canon", "evol_rl", "rover")
    write_effects(**{name: make_effect(ENTROPY) for name in names}, clpo=make_effect(ALIKE))
    remedies = see(run, **NO_ENTROPY, **FLAT_GROUPS)
    assert name_proposals(remedies) == ["clpo", "canon", "evol-rl"]
    assert remedies.unanswered == []


def test_a_method_that_fits_two_findings_is_proposed_once(run: Run, write_effects: Callable[..., None]) -> None:
    write_effects(rs_grpo=make_effect(ENTROPY, ALIKE))
    assert name_proposals(see(run, **NO_ENTROPY, **FLAT_GROUPS)) == ["rs-grpo"]


def test_completions_that_get_shorter_are_no_reason_to_shorten_them(run: Run, write_effects: Callable[..., None]) -> None:
    write_effects(canon=make_effect(make_comparison("mean length (tokens)")))
    assert name_proposals(see(run, completions__mean_length=np.linspace(10, 90, 100))) == ["canon"]
    shorter = see(run, completions__mean_length=np.linspace(90, 10, 100))
    assert (shorter.proposals, shorter.unanswered) == ([], [])


def test_a_held_out_reward_that_does_not_rise_is_a_signal_unless_the_task_is_solved(run: Run, write_effects: Callable[..., None]) -> None:
    write_effects(rs_grpo=make_effect(make_comparison("share of right answers after 400 steps", "higher")))
    flat = see(run, heldout__reward=[0.30, 0.31, 0.29, 0.30, 0.31])
    assert name_proposals(flat) == ["rs-grpo"]
    assert flat.proposals[0].signal.title == "Held-out reward has not risen: 0.300 at step 1, 0.310 at step 5"
    for values in ([0.3, 0.5, 0.7, 0.8, 0.9], [0.97, 0.98, 0.97, 0.98, 0.97], [0.3, 0.3]):
        assert name_proposals(see(run, heldout__reward=values)) == []


def test_nothing_is_proposed_for_runs_of_other_frameworks_or_specs_that_cannot_be_read(run: Run, write_effects: Callable[..., None]) -> None:
    write_effects(rs_grpo=make_effect(ENTROPY))
    run.spec = {"training": "unreadable"}
    assert see(run, **NO_ENTROPY).proposals == []
    run.outside = True
    assert see(run, **NO_ENTROPY) == Remedies([], [])


def test_findings_cured_by_settings_are_no_signals(run: Run) -> None:
    facts = RunFacts("grpo", {"loss": Series("loss", STEPS, np.full(100, np.nan))})
    report = sorted_out(run, facts)
    assert [found.rule.name for found in report.findings] == ["not-finite"]
    assert list_signals(facts, report) == []


# the page and the ablation


@pytest.fixture
def collapsed(run: Run, write_effects: Callable[..., None]) -> Run:
    write_effects(rs_grpo=make_effect(ENTROPY | {"by_construction": "the reward pays for it"}, make_comparison("accuracy", "higher", "opposite")))
    store(run, started(), *(measured(int(step), values={"entropy": float(value)}) for step, value in zip(STEPS, NO_ENTROPY["entropy"], strict=True)))
    return run


def test_the_page_shows_size_source_and_cost_with_a_link_to_the_evidence(as_owner: Client, collapsed: Run) -> None:
    page = as_owner.get(f"/runs/{collapsed.pk}/doctor/").content.decode()
    assert "Which helps here?" in page
    assert 'href="/methods/rs-grpo/#effect">entropy of answers (nats), difference -0.3 [-0.4, -0.2]</a>' in page
    assert 'href="#finding-entropy-collapse"' in page
    assert "a small problem; 3 seeds" in page
    assert "by construction" in page
    assert '<span class="badge bad">cost</span> accuracy' in page
    assert "Which helps here?" not in as_owner.get(f"/runs/{collapsed.pk}/doctor/?part=panel").content.decode()


def test_a_finding_without_a_fitting_method_says_so(as_owner: Client, collapsed: Run, write_effects: Callable[..., None]) -> None:
    write_effects()
    page = as_owner.get(f"/runs/{collapsed.pk}/doctor/").content.decode()
    assert "no method with a fitting measured effect can be stacked on this recipe" in page
    assert 'href="/systems/?idea=exploration&amp;state=here"' in page


def test_its_button_makes_the_ablation_of_the_recipe_with_the_method(as_owner: Client, collapsed: Run) -> None:
    url = f"/ablations/new/?from_run={collapsed.pk}&add=rs-grpo"
    assert f'href="{url.replace("&", "&amp;")}"' in as_owner.get(f"/runs/{collapsed.pk}/doctor/").content.decode()
    page = as_owner.get(url).content.decode()
    assert f"Does rs-grpo help #{collapsed.number} stacked" in page
    answer = as_owner.post("/ablations/new/", {**form_values(page, "data-ablation-form"), "seeds": "1", "act": "launch"})
    assert answer.status_code == 302
    ablation = Ablation.objects.of(collapsed.team).get()
    assert ablation.source == collapsed
    stacks = {member.variant: [choice["name"] for choice in member.run.spec["methods"]] for member in ablation.members.select_related("run")}
    assert stacks == {"full": ["siren", "rs-grpo"], "without siren": ["rs-grpo"], "without rs-grpo": ["siren"], "base": []}


def test_a_method_that_does_not_exist_cannot_be_added_and_one_that_is_there_stays(as_owner: Client, run: Run) -> None:
    assert as_owner.get(f"/ablations/new/?from_run={run.pk}&add=nothing").status_code == 404
    plan = as_owner.get(f"/ablations/new/?from_run={run.pk}&add=siren").context["plan"]
    assert [choice["name"] for choice in plan.spec["methods"]] == ["siren"]


def test_who_may_not_launch_sees_the_evidence_without_the_button(client: Client, team: Team, collapsed: Run) -> None:
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    page = client.get(f"/runs/{collapsed.pk}/doctor/").content.decode()
    assert "Which helps here?" in page
    assert "add=rs-grpo" not in page
