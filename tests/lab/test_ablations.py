"""Ablations: which runs they queue, what they say of finished ones, and whose they are."""

import json
import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from lab.teams.accounts.models import Team, User
from lab.training.ablations.figures import build_ablation_figures, compute_ablation_progress
from lab.training.ablations.launch import MOST_RUNS, create_ablation, request_ablation_stop, run_name
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.ablations.quantities import AblationQuantity, reduce_series
from lab.training.ablations.variants import variants_of
from lab.training.runs import metrics
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Attempt, Run, Status
from lab.watching.usage.models import Lease, Quota
from tests.lab.html_forms import form_values

STACKED = {
    "recipe": "grpo",
    "task": {"name": "mini_gsm"},
    "training": {"trainer": "grpo", "max_steps": 20},
    "base": {"name": "dr-grpo"},
    "methods": [{"name": "rs-grpo"}, {"name": "siren", "config": {}}],
    "seed": 7,
}
ONE = {**STACKED, "methods": [{"name": "rs-grpo"}]}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def source(team: Team, owner: User) -> Run:
    return launch_run(team, owner, STACKED, "stacked")


@pytest.fixture
def ablation(team: Team, owner: User) -> Ablation:
    return create_ablation(team, owner, "Which part helps", STACKED, 2)


def finish(member: AblationRun, seconds: int = 60, **values: list[float]) -> None:
    """Ends a run with these metrics, underscores standing for slashes, one point a step."""
    now = timezone.now()
    Run.across_teams.filter(pk=member.run_id).update(status=Status.FINISHED, started_at=now - timedelta(seconds=seconds), finished_at=now, step=20)
    Attempt.objects.create(run=member.run, number=1, from_step=0, host="h", device="cpu", started_at=now)
    points = {name.replace("_", "/", 1): list(enumerate(given, start=1)) for name, given in values.items()}
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, member.run_id, 1, points)


def shown(ablation: Ablation) -> Any:
    return build_ablation_figures(ablation, list(ablation.members.select_related("run").order_by("seed", "pk")))


def cell(ablation: Ablation, variant: str, metric: str) -> Any:
    (row,) = (row for row in shown(ablation).rows if row.variant == variant)
    (found,) = (one for one in row.cells if one.quantity.metric == metric)
    return found


def test_the_variants_are_the_stack_the_stack_without_each_method_and_the_base() -> None:
    assert [(variant.name, variant.removed) for variant in variants_of(STACKED)] == [
        ("full", ()),
        ("without rs-grpo", ("rs-grpo",)),
        ("without siren", ("siren",)),
        ("base", ("rs-grpo", "siren")),
    ]


def test_of_one_method_leaving_it_out_is_the_base() -> None:
    assert [variant.name for variant in variants_of(ONE)] == ["full", "base"]
    assert variants_of({**STACKED, "methods": []}) == []


def test_every_variant_keeps_all_but_its_methods_and_gets_the_same_seeds(ablation: Ablation) -> None:
    members = ablation.members.select_related("run")
    assert {(member.variant, member.seed) for member in members} == {(variant.name, seed) for variant in variants_of(STACKED) for seed in (7, 8)}
    for member in members:
        spec = member.run.spec
        assert spec["seed"] == member.seed
        assert spec["base"]["name"] == "dr-grpo"
        assert spec["training"]["max_steps"] == 20
        assert member.run.status == Status.QUEUED
    stacks = {member.variant: [choice["name"] for choice in member.run.spec["methods"]] for member in members}
    assert stacks == {"full": ["rs-grpo", "siren"], "without rs-grpo": ["siren"], "without siren": ["rs-grpo"], "base": []}


def test_all_runs_are_queued_or_none(team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = launch_run, []

    def fails_at_the_fifth(*arguments: Any, **named: Any) -> Run:
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("the database went away")
        return real(*arguments, **named)

    monkeypatch.setattr("lab.training.ablations.launch.launch_run", fails_at_the_fifth)
    with pytest.raises(RuntimeError):
        create_ablation(team, owner, "half", STACKED, 2)
    assert not Run.across_teams.exists()
    assert not Ablation.across_teams.exists()


def test_the_page_before_says_how_many_runs_it_will_be_and_how_long_one_takes(as_owner: Client, source: Run) -> None:
    Run.across_teams.filter(pk=source.pk).update(status=Status.RUNNING, step=10, latest={"step_seconds": 36.0})
    page = as_owner.get("/ablations/new/", {"from_run": source.pk}).content.decode()
    assert "12 runs" in page
    assert "about 12 min each" in page
    assert "without siren" in page
    part = as_owner.post("/ablations/new/", {"from_run": source.pk, "seeds": "5", "part": "plan"}).content.decode()
    assert "20 runs" in part
    assert "<h1>" not in part


def test_the_page_before_says_what_all_its_runs_take_by_finished_runs_like_them(as_owner: Client, ablation: Ablation, source: Run) -> None:
    member = ablation.members.select_related("run").get(variant="full", seed=7)
    finish(member, 60)
    now = timezone.now()
    lease = {"run": member.run, "number": member.run.number, "recipe": "grpo", "owner": "w/x", "gpus": 1}
    Lease.objects.create(team=ablation.team, **lease, started_at=now - timedelta(seconds=60), seen_at=now, ended_at=now)
    Quota.objects.create(team=ablation.team, gpu_hours=0.1)
    page = " ".join(as_owner.get("/ablations/new/", {"from_run": source.pk}).content.decode().split())
    assert "<dt>A run</dt><dd>about 1 min</dd>" in page
    assert "<dt>All 12, one after another</dt><dd>about 12 min</dd>" in page
    assert "<dt>GPU time of all</dt><dd>about 12 min</dd>" in page
    assert "It passes the month's GPU-hours." in page
    assert "min each" not in page


def test_launching_from_a_run_queues_the_runs_once_however_often_the_form_is_sent(as_owner: Client, source: Run) -> None:
    page = as_owner.get("/ablations/new/", {"from_run": source.pk}).content.decode()
    filled = form_values(page, "data-ablation-form") | {"seeds": "2", "name": "twice", "act": "launch"}
    first, second = as_owner.post("/ablations/new/", filled), as_owner.post("/ablations/new/", filled)
    assert first.headers["Location"] == second.headers["Location"]
    ablation = Ablation.across_teams.get()
    assert (ablation.name, ablation.seeds, ablation.source, ablation.members.count()) == ("twice", 2, source, 8)
    assert "0 of 8 runs finished" in as_owner.get(first.headers["Location"]).content.decode()


def test_a_spec_that_a_page_carries_is_checked_like_any_other(as_owner: Client) -> None:
    good = {"spec": json.dumps(ONE), "seeds": "1", "act": "launch", "name": "x", "token": "a"}
    assert as_owner.post("/ablations/new/", good).status_code == 302
    bad = {**good, "token": "b", "spec": json.dumps({**ONE, "policy": {"kind": "folder", "path": "/etc"}})}
    answer = as_owner.post("/ablations/new/", bad)
    assert answer.status_code == 422
    assert "policy.path" in answer.content.decode()
    assert Ablation.across_teams.count() == 1
    for nonsense in ("[]", "{", "", "[" * 100_000):
        assert as_owner.post("/ablations/new/", {**good, "spec": nonsense}).status_code == 404


@pytest.mark.parametrize(("seeds", "reason"), [("16", "at most 15 seeds"), ("0", "At least one seed"), ("x", "At least one seed"), ("99999", "seed")])
def test_too_many_runs_or_none_are_refused_with_the_reason(seeds: str, reason: str, as_owner: Client, source: Run) -> None:
    answer = as_owner.post("/ablations/new/", {"from_run": source.pk, "seeds": seeds, "act": "launch", "token": "t"})
    assert answer.status_code == 422
    assert reason in answer.content.decode()
    assert not Ablation.across_teams.exists()


def test_a_recipe_without_methods_has_nothing_to_take_away(as_owner: Client, team: Team, owner: User) -> None:
    plain = launch_run(team, owner, {**STACKED, "methods": []}, "plain")
    assert "nothing to ablate" in as_owner.get("/ablations/new/", {"from_run": plain.pk}).content.decode()
    assert "/ablations/new/?from_run=" not in as_owner.get(f"/runs/{plain.pk}/").content.decode()


def test_a_run_with_methods_offers_to_be_ablated(as_owner: Client, source: Run) -> None:
    assert f"/ablations/new/?from_run={source.pk}" in as_owner.get(f"/runs/{source.pk}/").content.decode()


def test_a_run_of_an_ablation_leads_back_to_it(as_owner: Client, ablation: Ablation, source: Run) -> None:
    member = ablation.members.get(variant="without siren", seed=8)
    assert f'href="/ablations/{ablation.pk}/">without siren, seed 8</a>' in as_owner.get(f"/runs/{member.run_id}/").content.decode()
    assert "in the ablation" not in as_owner.get(f"/runs/{source.pk}/").content.decode()


def test_more_seeds_go_on_where_the_others_ended(as_owner: Client, ablation: Ablation) -> None:
    for _ in range(2):  # sent twice
        as_owner.post(f"/ablations/{ablation.pk}/more/", {"seeds": "2", "token": "t"})
    ablation.refresh_from_db()
    assert ablation.seeds == 4
    assert sorted(ablation.members.filter(variant="full").values_list("seed", flat=True)) == [7, 8, 9, 10]
    page = as_owner.post(f"/ablations/{ablation.pk}/more/", {"seeds": "20", "token": "u"}, follow=True).content.decode()
    assert f"at most {MOST_RUNS}: choose at most 11 more seeds" in page
    assert ablation.members.count() == 16


def test_figures_are_the_mean_over_seeds_with_its_interval_and_the_paired_difference(ablation: Ablation) -> None:
    rewards = {("full", 7): 0.8, ("full", 8): 0.6, ("without siren", 7): 0.7, ("without siren", 8): 0.5, ("base", 7): 0.2}
    for member in ablation.members.all():
        if (reward := rewards.get((member.variant, member.seed))) is not None:
            finish(member, heldout_reward=[0.0, reward])
    full = cell(ablation, "full", "heldout/reward")
    assert full.estimate.mean == pytest.approx(0.7)
    assert full.estimate.half == pytest.approx(12.706 * 0.1, rel=1e-4)  # stdev / sqrt(2) = 0.1
    assert full.difference is None
    without = cell(ablation, "without siren", "heldout/reward").difference
    assert (without.mean, without.half) == (pytest.approx(-0.1), pytest.approx(0.0, abs=1e-9))  # every seed says the same: pairing sees it
    base = cell(ablation, "base", "heldout/reward")
    assert (base.estimate.mean, base.estimate.half, base.difference.mean, base.difference.count) == (0.2, None, pytest.approx(-0.6), 1)
    assert cell(ablation, "without rs-grpo", "heldout/reward").estimate is None
    (siren,) = (one for one in shown(ablation).contributions if one.method == "siren")
    assert siren.shares[0].estimate.mean == pytest.approx(0.1)


def test_a_claim_gets_a_verdict_from_the_interval_of_its_contribution(ablation: Ablation) -> None:
    for member in ablation.members.all():  # rs-grpo claims more entropy and has it; siren's claim is looked up too
        with_it = member.variant in ("full", "without siren")
        finish(member, entropy=[(1.0 if with_it else 0.5) + 0.01 * (member.seed - 7) * with_it] * 20)
    contributions = {one.method: {share.quantity.metric: share for share in one.shares} for one in shown(ablation).contributions}
    assert contributions["rs-grpo"]["entropy"].verdict == "held"
    assert contributions["siren"]["entropy"].estimate.mean == pytest.approx(0.0)


def test_only_finished_runs_count(ablation: Ablation) -> None:
    for member in ablation.members.filter(variant="full"):
        finish(member, heldout_reward=[0.5])
    Run.across_teams.filter(member__variant="full", member__seed=8).update(status=Status.STOPPED)
    assert cell(ablation, "full", "heldout/reward").estimate.count == 1
    found = compute_ablation_progress([member.run for member in ablation.members.select_related("run")])
    assert (found.total, found.finished, found.ended, found.waiting) == (8, 1, 1, 6)


def test_a_training_quantity_is_read_over_the_last_tenth_and_a_measured_one_at_the_end() -> None:
    series = metrics.Series("x", np.arange(1, 21), np.array([*([9.0] * 18), 1.0, math.nan]))
    assert reduce_series(AblationQuantity("x", "x", "tail"), series) == 1.0
    assert reduce_series(AblationQuantity("x", "x", "last"), series) == 1.0
    assert reduce_series(AblationQuantity("x", "x", "median"), series) == 9.0


def test_the_page_shows_every_seed_as_a_dot_that_leads_to_its_run(as_owner: Client, ablation: Ablation) -> None:
    members = list(ablation.members.filter(variant="full").select_related("run"))
    for member in members:
        finish(member, heldout_reward=[0.5], heldout_accuracy=[0.25])
    found = {one["key"]: one for one in shown(ablation).chart}
    dots = found["heldout-reward"]["variants"][0]["dots"]
    assert [dot["url"] for dot in dots] == [f"/runs/{member.run_id}/" for member in members]
    page = as_owner.get(f"/ablations/{ablation.pk}/").content.decode()
    assert "2 of 8 runs finished" in page
    assert "&quot;heldout-reward&quot;" in page


def test_the_page_polls_while_runs_are_open_and_rests_afterwards(as_owner: Client, ablation: Ablation) -> None:
    url = f"/ablations/{ablation.pk}/"
    assert 'hx-trigger="every 4s"' in as_owner.get(url, {"part": "live"}).content.decode()
    for member in ablation.members.all():
        finish(member, heldout_reward=[0.5])
    part = as_owner.get(url, {"part": "live"}).content.decode()
    assert "hx-trigger" not in part
    assert "<h1>" not in part


def test_stopping_asks_every_open_run_and_deleting_keeps_the_runs(as_owner: Client, ablation: Ablation) -> None:
    finish(ablation.members.all()[0], heldout_reward=[0.5])
    page = as_owner.post(f"/ablations/{ablation.pk}/stop/", follow=True).content.decode()
    assert "7 runs are stopping and saving" in page
    assert Run.across_teams.filter(status=Status.STOPPED).count() == 7
    assert request_ablation_stop(ablation) == 0
    as_owner.post(f"/ablations/{ablation.pk}/delete/")
    assert not Ablation.across_teams.exists()
    assert Run.across_teams.count() == 8


def test_the_list_shows_how_far_each_is(as_owner: Client, ablation: Ablation) -> None:
    finish(ablation.members.all()[0], heldout_reward=[0.5])
    page = as_owner.get("/ablations/").content.decode()
    assert "Which part helps" in page
    assert "1 of 8 finished" in page


def test_the_empty_list_leads_to_a_run_that_can_be_ablated(as_owner: Client, team: Team, owner: User) -> None:
    assert "Launch one" in as_owner.get("/ablations/").content.decode()
    run = launch_run(team, owner, ONE, "stacked")
    assert f"/ablations/new/?from_run={run.pk}" in as_owner.get("/ablations/").content.decode()


def test_methods_that_do_not_go_together_are_refused_with_the_variant_and_the_reason(as_owner: Client) -> None:
    spec = {**STACKED, "methods": [{"name": "rs-grpo"}, {"name": "siren"}, {"name": "re-po"}]}
    page = as_owner.post("/ablations/new/", {"spec": json.dumps(spec), "seeds": "1", "act": "launch", "token": "t"})
    assert page.status_code == 422
    assert "full: " in page.content.decode()
    assert "works on dpo, not on grpo" in page.content.decode()
    assert not Run.across_teams.exists()


def test_the_launch_form_leads_to_a_plan_of_what_it_holds(as_owner: Client) -> None:
    page = as_owner.get("/launch/grpo/?add=rs-grpo&add=siren").content.decode()
    filled = form_values(page, "data-launch") | {"stages.0.training.max_steps": "33"}
    answer = as_owner.post("/ablations/new/", filled)
    assert answer.status_code == 200
    assert "12 runs" in answer.content.decode()
    assert not Run.across_teams.exists()
    carried = form_values(answer.content.decode(), "data-ablation-form")
    assert as_owner.post("/ablations/new/", {**carried, "seeds": "1", "act": "launch"}).status_code == 302
    assert {run.spec["training"]["max_steps"] for run in Run.across_teams.all()} == {33}
    assert Run.across_teams.count() == 4


def test_a_chain_is_not_taken_apart(as_owner: Client) -> None:
    filled = form_values(as_owner.get("/launch/demo/").content.decode(), "data-launch")
    page = as_owner.post("/ablations/new/", filled, follow=True).content.decode()
    assert "A multi-stage recipe cannot be ablated" in page


def test_names_are_text(as_owner: Client, team: Team, owner: User) -> None:
    hostile = create_ablation(team, owner, HOSTILE, {**STACKED, "methods": [{"name": HOSTILE}, {"name": "siren"}]}, 1)
    for url in ("/ablations/", f"/ablations/{hostile.pk}/"):
        page = as_owner.get(url).content.decode()
        assert HOSTILE not in page
        assert "&lt;img src=x" in page


def test_another_teams_ablation_and_run_are_not_found(as_stranger: Client, client: Client, ablation: Ablation, source: Run) -> None:
    assert client.get(f"/ablations/{ablation.pk}/").headers["Location"].startswith("/accounts/login/")
    assert "Which part helps" not in as_stranger.get("/ablations/").content.decode()
    assert as_stranger.get(f"/ablations/{ablation.pk}/").status_code == 404
    assert as_stranger.get("/ablations/new/", {"from_run": source.pk}).status_code == 404
    assert as_stranger.post("/ablations/new/", {"from_run": source.pk, "seeds": "1", "act": "launch"}).status_code == 404
    for act in ("more", "stop", "delete"):
        assert as_stranger.post(f"/ablations/{ablation.pk}/{act}/", {"seeds": "1"}).status_code == 404
    assert ablation.members.filter(run__status=Status.QUEUED).count() == 8
    for key in ("nonsense", "0" * 40):
        assert as_stranger.get("/ablations/new/", {"from_run": key}).status_code == 404


@pytest.mark.parametrize("act", ["more", "stop", "delete"])
def test_nobody_acts_by_following_a_link(act: str, as_owner: Client, ablation: Ablation) -> None:
    assert as_owner.get(f"/ablations/{ablation.pk}/{act}/").status_code == 405


def test_run_names_keep_what_tells_them_apart() -> None:
    name = run_name("x" * 300, "without rs-grpo, seed 7")
    assert len(name) == 100
    assert name.endswith("x: without rs-grpo, seed 7")
    assert len(run_name("x", "without " + "y" * 300)) <= 100
