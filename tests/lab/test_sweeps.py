"""Sweeps: what they try next, what they launch, pause and promote, what their page says, and whose they are."""

from collections.abc import Callable
from functools import partial
from typing import Any

import optuna
import pytest
from django.db import connection, transaction
from django.test import Client

from lab.teams.accounts.models import Membership, Team, User
from lab.teams.audit.models import Entry
from lab.teams.people.departures import HOOKS
from lab.training.runs import metrics
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Attempt, Run, Status
from lab.training.sweeps.advance import PAUSED, advance_sweep
from lab.training.sweeps.checks import find_sweep_problems
from lab.training.sweeps.halving import list_rungs, select_promoted
from lab.training.sweeps.launch import continue_sweep, create_sweep, stop_sweep
from lab.training.sweeps.leaderboard import build_leaderboard, correlate_ranks
from lab.training.sweeps.models import Sweep, SweepState, Trial
from lab.training.sweeps.space import read_axes
from lab.training.sweeps.suggestions import make_distributions, make_sampler, suggest_values
from tests.conftest import make_member
from tests.lab.html_forms import form_values
from tests.lab.labels.test_concurrency import at_once

SPEC: dict[str, Any] = {
    "recipe": "grpo",
    "task": {"name": "mini_gsm"},
    "training": {"trainer": "grpo", "max_steps": 100},
    "methods": [{"name": "rs-grpo"}],
    "evaluation": {"every": 10},
    "seed": 7,
}
RATE = {"key": "training.learning_rate", "low": 1e-5, "high": 1e-2, "log": True}
GROUP = {"key": "training.num_generations", "values": [4, 8]}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def draft(team: Team, owner: User) -> Callable[..., Sweep]:
    def make(**given: Any) -> Sweep:
        fields = {"sampler": "tpe", "space": [RATE, GROUP], "metric": "reward", "most_runs": 4, "parallel": 2, "name": "Rates", **given}
        return Sweep(**{"team": team, "author": owner, "spec": SPEC, **fields})

    return make


def report(trial: Trial, step: int, reward: float | None, status: Status = Status.RUNNING) -> None:
    """The trial's run stands at ``step`` with this reward in every step so far."""
    run = trial.run
    assert run is not None
    Attempt.objects.get_or_create(run=run, number=1, defaults={"from_step": 0, "host": "h", "device": "cpu", "started_at": run.created_at})
    if reward is not None:
        points = [(at, reward) for at in range(run.step + 1, step + 1)]
        with transaction.atomic(), connection.cursor() as cursor:
            metrics.append_metric_points(cursor, run.pk, 1, {"reward": points})
    ended = {"owner": ""} if status not in (Status.STARTING, Status.RUNNING, Status.STOPPING) else {"owner": "w"}
    Run.across_teams.filter(pk=run.pk).update(status=status, step=step, stop_requested_at=None, **ended)


def trials_of(sweep: Sweep) -> list[Trial]:
    return sweep.in_order()


def settle(sweep: Sweep) -> None:
    """What was asked to stop has saved."""
    for trial in trials_of(sweep):
        if trial.run and trial.run.status == Status.STOPPING:
            Run.across_teams.filter(pk=trial.run.pk).update(status=Status.STOPPED, stop_requested_at=None, owner="")


def fields_of(sweep: Sweep) -> list[str]:
    return [problem.field for problem in find_sweep_problems(sweep)]


@pytest.mark.parametrize("sampler", ["tpe", "mutations", "random"])
def test_values_asked_of_stored_rows_are_those_of_one_study_that_goes_on(sampler: str, draft: Callable[..., Sweep]) -> None:
    sweep = draft(sampler=sampler, most_runs=20)
    study, rows = optuna.create_study(direction="maximize"), list[Trial]()
    distributions = make_distributions(read_axes(sweep.space))
    for number in range(16):
        study.sampler = make_sampler(sweep, number)
        asked = study.ask(distributions)
        values = suggest_values(sweep, rows)
        assert values == asked.params
        reward = -abs(values["training.learning_rate"] - 1e-3)
        study.tell(asked, reward)
        rows.append(Trial(sweep=sweep, number=number, values=values, score=reward))
    assert len({tuple(row.values.values()) for row in rows}) == 16


def test_the_next_values_do_not_change_when_they_are_asked_again_while_others_train(draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(parallel=3, most_runs=30))
    rows = trials_of(sweep)
    assert suggest_values(sweep, rows) == suggest_values(sweep, trials_of(sweep))
    assert suggest_values(sweep, rows) not in [row.values for row in rows]


def test_a_grid_is_every_combination_and_seeds_are_nothing_else(draft: Callable[..., Sweep]) -> None:
    rates = {"key": "training.learning_rate", "values": [1e-4, 1e-3]}
    sweep = create_sweep(draft(sampler="grid", space=[rates, GROUP], most_runs=50, parallel=9))
    assert [tuple(trial.values.values()) for trial in trials_of(sweep)] == [(1e-4, 4), (1e-4, 8), (1e-3, 4), (1e-3, 8)]
    training = [trial.run.spec["training"] for trial in sweep.trials.select_related("run").order_by("number") if trial.run]
    assert [(one["learning_rate"], one["num_generations"]) for one in training] == [(1e-4, 4), (1e-4, 8), (1e-3, 4), (1e-3, 8)]
    seeds = create_sweep(draft(sampler="seeds", space=[], most_runs=3, parallel=3))
    assert sorted(Run.across_teams.filter(trial__sweep=seeds).values_list("spec__seed", flat=True)) == [7, 8, 9]


def test_a_parameter_of_a_stacked_method_is_searched_too(draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(sampler="grid", space=[{"key": "methods.rs-grpo.risk", "values": [2.0, 4.0]}]))
    configs = Run.across_teams.filter(trial__sweep=sweep).order_by("number").values_list("spec__methods__0__config", flat=True)
    assert list(configs) == [{"risk": 2.0}, {"risk": 4.0}]
    assert fields_of(draft(space=[{"key": "methods.rs-grpo.risk", "values": ["x"]}])) == ["space.methods.rs-grpo.risk.values"]


@pytest.mark.feature(11)
def test_a_sweep_launches_so_many_at_a_time_until_it_has_all_and_ends(draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(most_runs=3))
    assert [trial.status for trial in trials_of(sweep)] == ["queued", "queued"]
    advance_sweep(sweep)
    assert sweep.trials.count() == 2
    report(trials_of(sweep)[0], 100, 0.5, Status.FINISHED)
    advance_sweep(sweep)
    assert sweep.trials.count() == 3
    assert trials_of(sweep)[0].score == 0.5
    report(trials_of(sweep)[1], 20, 0.1, Status.FAILED)
    report(trials_of(sweep)[2], 100, 0.7, Status.FINISHED)
    advance_sweep(sweep)
    sweep.refresh_from_db()
    assert sweep.state == SweepState.FINISHED
    board = build_leaderboard(sweep)
    assert [(row.trial.number, row.rank) for row in board.rows] == [(2, 1), (0, 2), (1, None)]
    assert board.counts == [("failed", 1)]


def test_three_failures_without_a_success_stop_a_sweep_which_a_person_may_continue(draft: Callable[..., Sweep], owner: User) -> None:
    sweep = create_sweep(draft(most_runs=9, parallel=3))
    for trial in trials_of(sweep):
        report(trial, 1, None, Status.FAILED)
    advance_sweep(sweep)
    sweep.refresh_from_db()
    assert (sweep.state, sweep.trials.count()) == (SweepState.STOPPED, 3)
    assert "3 trials failed" in sweep.reason
    assert continue_sweep(sweep, owner)
    assert sweep.trials.count() == 6


def test_values_that_are_refused_at_launch_are_a_failed_trial_and_do_not_end_the_sweep(draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(sampler="grid", space=[GROUP], parallel=1))
    Sweep.across_teams.filter(pk=sweep.pk).update(space=[{"key": GROUP["key"], "values": [4, 7, 8]}])
    report(trials_of(sweep)[0], 100, 0.5, Status.FINISHED)
    advance_sweep(sweep)
    refused, last = trials_of(sweep)[1:]
    assert "does not divide" in refused.refusal
    assert (refused.status, last.status) == ("refused", "queued")


def test_stopping_saves_what_trains_and_continuing_takes_it_up_before_anything_new(draft: Callable[..., Sweep], owner: User) -> None:
    sweep = create_sweep(draft())
    report(trials_of(sweep)[0], 30, 0.4)
    assert stop_sweep(sweep)
    assert not stop_sweep(sweep)
    assert [trial.status for trial in trials_of(sweep)] == ["stopping", "paused"]
    settle(sweep)
    advance_sweep(sweep)
    assert sweep.trials.count() == 2
    assert continue_sweep(sweep, owner)
    assert [trial.status for trial in trials_of(sweep)] == ["queued", "queued"]
    acts = list(Entry.objects.of(sweep.team).filter(kind="sweep").order_by("pk").values_list("action", flat=True))
    assert acts == ["sweep.launch", "sweep.stop", "sweep.continue"]


def test_rungs_begin_at_a_fifth_and_the_best_third_goes_on(draft: Callable[..., Sweep]) -> None:
    assert draft(halving=True, spec={**SPEC, "training": {"trainer": "grpo"}}).rungs == [30, 90], "of the trainer's own 150 steps"
    assert list_rungs(100) == [20, 60]
    assert list_rungs(11) == [3, 9]
    scores = {"a": 0.1, "b": None, "c": 0.3, "d": 0.2, "e": 0.0, "f": 0.3}
    assert select_promoted(scores, True) == {"c", "f"}
    assert select_promoted(scores, False) == {"e", "a"}
    assert select_promoted({"a": 0.1, "b": 0.2}, True) == set()
    assert select_promoted({"a": 0.1, "b": 0.2}, True, nobody_else_comes=True) == {"b"}


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_at_once_one_launches(draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(most_runs=8, parallel=4))
    Run.across_teams.update(status=Status.FINISHED)
    sweep.trials.update(score=0.5)
    advance = partial(advance_sweep, sweep)
    assert at_once(advance, advance, advance) == [None] * 3
    assert sorted(sweep.trials.values_list("number", flat=True)) == list(range(8))
    assert Run.across_teams.filter(status=Status.QUEUED).count() == 4


@pytest.mark.feature(11)
def test_halving_pauses_who_is_behind_at_a_rung_and_resumes_who_turns_out_among_the_best(draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(halving=True, most_runs=3, parallel=1))
    (first,) = trials_of(sweep)
    report(first, 19, 0.5)
    advance_sweep(sweep)
    assert trials_of(sweep)[0].status == "running"
    report(trials_of(sweep)[0], 23, 0.9)  # the rung is read where it lies, at step 20
    advance_sweep(sweep)
    first = trials_of(sweep)[0]
    assert (first.status, first.rung_scores) == ("stopping", [pytest.approx(0.54)])
    for reward in (0.2, 0.3):
        settle(sweep)
        advance_sweep(sweep)
        newest = trials_of(sweep)[-1]
        assert newest.status == "queued"
        report(newest, 20, reward)
        report(trials_of(sweep)[-1], 65, 0.95)  # too quick to be paused at its rung; what it reached beyond counts for nothing
        advance_sweep(sweep)
    first = trials_of(sweep)[0]
    assert first.run is not None
    assert first.run.reason == f"{PAUSED} at step 23"
    settle(sweep)
    advance_sweep(sweep)  # three have arrived: the best third is the first
    assert [(trial.status, trial.rung) for trial in trials_of(sweep)] == [("queued", 1), ("paused", 0), ("paused", 0)]
    report(trials_of(sweep)[0], 60, 0.9)
    advance_sweep(sweep)
    settle(sweep)
    advance_sweep(sweep)  # nobody else comes to the second rung
    assert [(trial.status, trial.rung) for trial in trials_of(sweep)] == [("queued", 2), ("paused", 0), ("paused", 0)]
    report(trials_of(sweep)[0], 100, 0.9, Status.FINISHED)
    advance_sweep(sweep)
    sweep.refresh_from_db()
    assert sweep.state == SweepState.FINISHED
    assert [trial.status for trial in trials_of(sweep)] == ["finished", "paused", "paused"]


def test_a_paused_trial_that_a_person_resumes_is_let_go_on(draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(halving=True, most_runs=9, parallel=1))
    report(trials_of(sweep)[0], 20, 0.1)
    advance_sweep(sweep)
    settle(sweep)
    run = trials_of(sweep)[0].run
    assert run is not None
    assert run.resume()
    advance_sweep(sweep)
    report(trials_of(sweep)[0], 70, 0.1)
    advance_sweep(sweep)
    assert trials_of(sweep)[0].status == "running"
    assert sweep.trials.count() == 1, "its place is taken"


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"space": []}, "space", "nothing to search"),
        ({"space": [{**RATE, "high": 2.0}]}, "space.training.learning_rate.high", "at most 1"),
        ({"space": [{**RATE, "low": 0.0}]}, "space.training.learning_rate.low", "begins above 0"),
        ({"space": [{**RATE, "low": 0.1}]}, "space.training.learning_rate.high", "greater than the lowest"),
        ({"space": [{**RATE, "high": "x"}]}, "space.training.learning_rate.high", "a number"),
        ({"space": [{**RATE, "high": None}]}, "space.training.learning_rate.high", "is empty"),
        ({"space": [{**RATE, "values": [0.1]}]}, "space.training.learning_rate.values", "both"),
        ({"space": [RATE], "sampler": "grid"}, "space.training.learning_rate.low", "list of values"),
        ({"space": [{"key": "training.num_generations", "values": [8, 7]}]}, "space.training.num_generations.values", "does not divide"),
        ({"space": [{"key": "training.lr_scheduler_type", "values": ["up"]}]}, "space.training.lr_scheduler_type.values", "one of"),
        ({"space": [{"key": "training.num_generations", "low": 4.5, "high": 8}]}, "space.training.num_generations.low", "whole number"),
        ({"space": [{"key": "output", "values": ["/etc"]}]}, "space.output", "no hyperparameter"),
        ({"most_runs": 0}, "most_runs", "from 1 to 200"),
        ({"parallel": -1}, "parallel", "from 1 to 20"),
        ({"spec": {**SPEC, "evaluation": {"prompts": 0}}, "metric": "heldout"}, "metric", "no held-out prompts"),
        ({"halving": True, "space": [{"key": "training.max_steps", "values": [50, 80]}]}, "halving", "different length"),
        ({"halving": True, "metric": "heldout", "spec": {**SPEC, "evaluation": {"every": 50}}}, "halving", "nothing is evaluated"),
        ({"spec": {**SPEC, "policy": {"kind": "folder", "path": "/etc"}}}, "policy.path", "only names"),
    ],
)
def test_what_is_wrong_names_the_input_and_the_fix(given: dict[str, Any], field: str, words: str, draft: Callable[..., Sweep]) -> None:
    (problem, *_) = find_sweep_problems(draft(**given))
    assert problem.field == field
    assert words in str(problem)


def test_a_combination_that_does_not_go_together_is_told_with_the_other_value(draft: Callable[..., Sweep]) -> None:
    batch = {"key": "training.per_device_train_batch_size", "values": [60, 64]}
    (problem,) = find_sweep_problems(draft(space=[batch, GROUP]))
    assert problem.field == "space.training.num_generations.values"
    assert problem.message.endswith("with training.per_device_train_batch_size = 60")


def test_the_form_says_what_is_wrong_at_its_input_and_a_good_one_starts_once(as_owner: Client, team: Team, owner: User) -> None:
    run = launch_run(team, owner, SPEC, "source")
    assert f"/sweeps/new/?from_run={run.pk}" in as_owner.get(f"/runs/{run.pk}/").content.decode()
    page = as_owner.get("/sweeps/new/", {"from_run": run.pk}).content.decode()
    rate = {"space.training.learning_rate.low": "0.0001", "space.training.learning_rate.high": "5", "space.training.learning_rate.log": "on"}
    filled = form_values(page, "data-sweep-form") | rate | {"act": "launch", "metric": "reward"}
    refused = as_owner.post("/sweeps/new/", filled)
    assert refused.status_code == 422
    assert 'id="error-training.learning_rate-high">Must be at most 1' in refused.content.decode()
    filled["space.training.learning_rate.high"] = "0.01"
    first, second = as_owner.post("/sweeps/new/", filled), as_owner.post("/sweeps/new/", filled)
    assert first.headers["Location"] == second.headers["Location"]
    sweep = Sweep.across_teams.get()
    assert (sweep.source, sweep.state, sweep.trials.count(), sweep.space) == (run, "running", 2, [{**RATE, "low": 0.0001}])
    shown = as_owner.get(first.headers["Location"]).content.decode()
    assert "0 of 20 trials finished, 2 queued" in shown
    assert "2 running" not in shown
    trial = sweep.trials.get(number=0)
    assert f'href="/sweeps/{sweep.pk}/">trial 1</a>' in as_owner.get(f"/runs/{trial.run_id}/").content.decode()


def test_a_sweep_starts_from_a_recipe_and_from_what_a_launch_form_holds(as_owner: Client) -> None:
    assert "?recipe=grpo" in as_owner.get("/sweeps/new/").content.decode()
    assert "Learning rate, lowest" in as_owner.get("/sweeps/new/", {"recipe": "grpo"}).content.decode()
    assert as_owner.get("/sweeps/new/", {"recipe": "demo"}).status_code == 404
    filled = form_values(as_owner.get("/launch/grpo/?add=rs-grpo").content.decode(), "data-launch") | {"stages.0.training.max_steps": "77"}
    page = as_owner.post("/sweeps/new/", filled).content.decode()
    assert 'name="space.methods.rs-grpo.risk.low"' in page
    carried = form_values(page, "data-sweep-form") | {"sampler": "seeds", "most_runs": "2", "metric": "reward"}
    part = as_owner.post("/sweeps/new/", {**carried, "part": "plan"}).content.decode()
    assert "2 trials" in part
    assert "<h1>" not in part
    create = as_owner.post("/sweeps/new/", {**carried, "act": "launch"})
    assert create.status_code == 302
    assert Run.across_teams.filter(spec__training__max_steps=77, trial__isnull=False).count() == 2


def test_the_page_ranks_correlates_and_launches_the_best_again(as_owner: Client, draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(sampler="random", most_runs=9, parallel=9, space=[RATE]))
    ordered = sorted(trials_of(sweep), key=lambda trial: trial.values[RATE["key"]])
    for place, trial in enumerate(ordered):
        report(trial, 100, place / 10, Status.FINISHED)
    advance_sweep(sweep)
    page = as_owner.get(f"/sweeps/{sweep.pk}/").content.decode()
    assert "9 of 9 trials finished" in page
    assert "mean of the last 10 steps" in page
    assert "+1" in page[page.index("Rank correlation") :]
    board = build_leaderboard(sweep, "-training.learning_rate")
    assert [row.trial.pk for row in board.rows] == [trial.pk for trial in reversed(ordered)]
    as_owner.post(f"/sweeps/{sweep.pk}/again/", {"token": "t"})
    again = Sweep.across_teams.exclude(pk=sweep.pk).get()
    runs = Run.across_teams.filter(trial__sweep=again).order_by("number")
    assert [run.spec["seed"] for run in runs] == [8, 9, 10]
    assert {run.spec["training"]["learning_rate"] for run in runs} == {ordered[-1].values[RATE["key"]]}


def test_ranks_of_equal_values_are_shared() -> None:
    assert correlate_ranks([1, 2, 2, 3], [10, 20, 20, 30]) == pytest.approx(1.0)
    assert correlate_ranks([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert correlate_ranks([1, 1, 1], [3, 2, 1]) is None


def test_a_trial_outlives_its_run_and_a_deleted_sweep_leaves_its_runs(as_owner: Client, draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft())
    first, _second = trials_of(sweep)
    report(first, 100, 0.5, Status.FINISHED)
    advance_sweep(sweep)
    assert first.run is not None
    as_owner.post("/bin/put/", {"run": [first.run.number]})
    assert "in the bin" in as_owner.get(f"/sweeps/{sweep.pk}/").content.decode()
    Run.across_teams.get(pk=first.run.pk).delete()
    board = build_leaderboard(sweep)
    assert (board.rows[0].trial.status, board.rows[0].rank, board.rows[0].score) == ("deleted", 1, 0.5)
    count = Run.across_teams.count()
    as_owner.post(f"/sweeps/{sweep.pk}/delete/")
    assert not Sweep.across_teams.exists()
    assert Run.across_teams.count() == count


def test_a_sweep_stops_when_the_person_it_launches_for_leaves(team: Team, draft: Callable[..., Sweep]) -> None:
    person = make_member("leaver@example.org", team, "researcher")
    sweep = create_sweep(draft(author=person))
    HOOKS["sweeps"](team, person)
    Membership.objects.filter(user=person).update(active=False)
    sweep.refresh_from_db()
    assert sweep.state == SweepState.STOPPED
    assert "left the team" in sweep.reason


def test_a_sweep_launches_nothing_more_for_somebody_who_may_not(team: Team, draft: Callable[..., Sweep]) -> None:
    person = make_member("demoted@example.org", team, "researcher")
    sweep = create_sweep(draft(author=person))
    Membership.objects.filter(user=person).update(role="viewer")
    report(trials_of(sweep)[0], 100, 0.5, Status.FINISHED)
    advance_sweep(sweep)
    sweep.refresh_from_db()
    assert (sweep.state, sweep.trials.count()) == (SweepState.STOPPED, 2)
    assert "may not launch" in sweep.reason


def test_names_and_values_are_shown_as_text(as_owner: Client, draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft(name=HOSTILE, parallel=1))
    Trial.objects.create(sweep=sweep, number=1, values={"training.num_generations": HOSTILE}, refusal=HOSTILE)
    for url in ("/sweeps/", f"/sweeps/{sweep.pk}/"):
        assert HOSTILE not in as_owner.get(url).content.decode()


def test_another_teams_sweep_is_not_found(as_stranger: Client, draft: Callable[..., Sweep]) -> None:
    sweep = create_sweep(draft())
    assert "Rates" not in as_stranger.get("/sweeps/").content.decode()
    assert as_stranger.get(f"/sweeps/{sweep.pk}/").status_code == 404
    for act in ("stop", "continue", "again", "delete"):
        assert as_stranger.post(f"/sweeps/{sweep.pk}/{act}/").status_code == 404
