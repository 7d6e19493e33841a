"""Experiment grids: which runs they queue, what is refused, what the matrix says of finished ones, and whose they are."""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from lab.teams.accounts.models import Team, User
from lab.teams.audit.models import Entry
from lab.training.ablations.grid_checks import MOST_GRID_RUNS, find_grid_problems
from lab.training.ablations.grid_figures import GridFigures, build_grid_figures, choose_quantity, list_grid_quantities
from lab.training.ablations.grid_matrix import MatrixCell, MatrixPanel, build_matrix_panels, read_matrix_choice
from lab.training.ablations.judge_differences import list_grid_judge_differences
from lab.training.ablations.launch import add_seeds, create_ablation, create_grid, request_ablation_stop, resume_ablation_runs
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.runs import metrics
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Attempt, Run, Status
from tests.lab.html_forms import form_values
from tests.lab.test_ablations import STACKED
from trainers.contract.spec import SpecError

SPEC: dict[str, Any] = {"recipe": "grpo", "task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "max_steps": 20}, "seed": 3}
TRAINER = {
    "name": "Trainer",
    "levels": [{"name": "SFT", "changes": {"training.trainer": "sft"}}, {"name": "GRPO", "changes": {}}],
}
RATE = {"name": "Rate", "levels": [{"name": name, "changes": {"training.learning_rate": rate}} for name, rate in (("low", 1e-4), ("high", 1e-3))]}
TRAINED = {"name": "Trained", "levels": [{"name": name, "changes": {"task.difficulty": name}} for name in ("easy", "hard")]}
MEASURED = {"name": "Measured", "levels": [{"name": name, "metric": f"heldout/{name}"} for name in ("easy", "hard")]}
HOSTILE = "<img src=x onerror=alert(1)>"


def make_grid(team: Team, owner: User | None, *factors: Any, seeds: int = 2, **about: Any) -> Ablation:
    """Not stored."""
    return Ablation(team=team, author=owner, name="A grid", spec=SPEC, factors=list(factors), seeds=seeds, **about)


@pytest.fixture
def grid(team: Team, owner: User) -> Ablation:
    return create_grid(make_grid(team, owner, TRAINER, RATE))


@pytest.fixture
def transfer_grid(team: Team, owner: User) -> Ablation:
    return create_grid(make_grid(team, owner, TRAINER, TRAINED, MEASURED))


def finish(member: AblationRun, **points: list[tuple[int, float]]) -> None:
    """Ends a run with these metrics, the first underscore standing for a slash; ``tokens`` is the axis."""
    now = timezone.now()
    Run.across_teams.filter(pk=member.run_id).update(status=Status.FINISHED, started_at=now - timedelta(seconds=60), finished_at=now, step=20)
    Attempt.objects.create(run=member.run, number=1, from_step=0, host="h", device="cpu", started_at=now)
    named = {"@tokens" if name == "tokens" else name.replace("_", "/", 1): given for name, given in points.items()}
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, member.run_id, 1, named)


def read_figures(grid: Ablation, quantity: str = "") -> GridFigures:
    members = grid.in_order()
    return build_grid_figures(grid, members, choose_quantity(list_grid_quantities(grid, members), quantity))


def panels_of(grid: Ablation, **choice: str) -> list[MatrixPanel]:
    figures = read_figures(grid)
    return build_matrix_panels(figures, read_matrix_choice(choice, figures.factors))


def matrix(grid: Ablation, **choice: str) -> dict[tuple[str, str, str], MatrixCell]:
    """(title, row, column) → cell."""
    return {
        (panel.title, name, column): cell
        for panel in panels_of(grid, **choice)
        for name, cells in panel.rows
        for column, cell in zip(panel.head, cells, strict=True)
    }


def fields(grid: Ablation) -> list[str]:
    return [problem.field for problem in find_grid_problems(grid)]


def test_every_cell_is_queued_with_the_same_seeds_its_changes_and_its_tags(grid: Ablation) -> None:
    members = list(grid.members.select_related("run"))
    names = [f"{trainer} · {rate}" for trainer in ("SFT", "GRPO") for rate in ("low", "high")]
    assert {(member.variant, member.seed) for member in members} == {(name, seed) for name in names for seed in (3, 4)}
    for member in members:
        trainer, rate = member.variant.split(" · ")
        spec = member.run.spec
        assert (spec["training"]["trainer"], spec["training"]["max_steps"], spec["seed"]) == (trainer.lower(), 20, member.seed)
        assert spec["training"]["learning_rate"] == {"low": 1e-4, "high": 1e-3}[rate]
        assert member.run.tags == [trainer, rate]
        assert member.run.name == f"A grid: {member.variant}, seed {member.seed}"
        assert member.run.status == Status.QUEUED
    assert Entry.across_teams.get(action="ablation.launch").details == {"seeds": 2, "runs": 8, "cells": 4}


def test_a_budget_in_steps_is_what_every_cell_trains(team: Team, owner: User) -> None:
    grid = create_grid(make_grid(team, owner, TRAINER, seeds=1, budget={"kind": "steps", "value": 33}))
    assert {run.spec["training"]["max_steps"] for run in Run.across_teams.filter(member__ablation=grid)} == {33}


def test_all_runs_are_queued_or_none(team: Team, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = launch_run, []

    def fails_at_the_third(*arguments: Any, **named: Any) -> Run:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the database went away")
        return real(*arguments, **named)

    monkeypatch.setattr("lab.training.ablations.launch.launch_run", fails_at_the_third)
    with pytest.raises(RuntimeError):
        create_grid(make_grid(team, owner, TRAINER, RATE))
    assert not Run.across_teams.exists()
    assert not Ablation.across_teams.exists()


def level(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "changes": {path.replace("__", "."): value for path, value in changes.items()}}


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ([], ["factors"]),
        ([TRAINER, RATE, TRAINED, MEASURED], ["factors"]),
        ([{"name": "", "levels": TRAINER["levels"]}], ["factors.0.name"]),
        ([TRAINER, {**RATE, "name": "trainer"}], ["factors.1.name"]),
        ([{"name": "One", "levels": [level("a")]}], ["factors.0.levels"]),
        ([{"name": "Lines", "levels": [level("a\nb"), level("c ")]}], ["factors.0.levels", "factors.0.levels"]),
        ([{"name": "Twice", "levels": [level("a"), level("A")]}], ["factors.0.levels"]),
        ([{"name": "Dot", "levels": [level("a · b"), level("a")]}], ["factors.0.levels"]),
        ([{"name": "Mixed", "levels": [level("a"), {"name": "b", "metric": "heldout/b"}]}], ["factors.0.levels"]),
        ([{"name": "NUL", "levels": [level("a\0"), level("b")]}], ["factors.0.levels.0.name"]),
        ([{"name": "Infinite", "levels": [level("a", training__beta=float("inf")), level("b")]}], ["factors.0.levels.0.changes.training.beta"]),
        ([MEASURED], ["factors"]),
        ([TRAINER, MEASURED, {**MEASURED, "name": "Again"}], ["factors"]),
        ([RATE, {**RATE, "name": "Again"}], ["factors.1.levels"]),
        ([RATE, {"name": "Whole", "levels": [level("a", training={"trainer": "sft"}), level("b")]}], ["factors.1.levels"]),
        ([{"name": "Seed", "levels": [level("a", seed=1), level("b", seed=2)]}], ["factors.0.levels"]),
        ([RATE, {"name": "Bad", "levels": [level("a", training__beta=-1), level("b")]}], ["factors.1.levels"]),
        ([RATE, {"name": "Bad", "levels": [level("a", training__nonsense=1), level("b")]}], ["factors.1.levels"]),
        ([{"name": "Bad", "levels": [level("a", methods__siren__config__x=1), level("b")]}], ["factors.0.levels"]),
        ([{"name": "Bad", "levels": [level("a", base={"name": "dpo"}), level("b")]}], ["factors.0.levels"]),
        ([{"name": "Many", "levels": [level(str(n), training__learning_rate=n / 1e4) for n in range(1, 14)]}], ["factors.0.levels"]),
    ],
)
def test_what_is_wrong_with_a_factor_is_said_at_it(factors: list[Any], expected: list[str], team: Team, owner: User) -> None:
    assert fields(make_grid(team, owner, *factors)) == expected
    with pytest.raises(SpecError):
        create_grid(make_grid(team, owner, *factors))
    assert not Run.across_teams.exists()


def test_a_problem_of_one_level_names_it_and_one_of_the_recipe_is_the_recipes(team: Team, owner: User) -> None:
    bad = {"name": "Bad", "levels": [level("wrong", training__beta=-1), level("right")]}
    (problem,) = find_grid_problems(make_grid(team, owner, RATE, bad))
    assert problem.message.startswith("“wrong”: training.beta: ")
    broken = make_grid(team, owner, RATE)
    broken.spec = {**SPEC, "evaluation": {"every": -1}}
    assert fields(broken) == ["spec.evaluation.every"]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"kind": "steps", "value": 0}, ["budget.value"]),
        ({"kind": "tokens", "value": 2.5}, ["budget.value"]),
        ({"kind": "reached", "value": 0.5}, ["budget.metric"]),
        ({"kind": "reached", "value": -0.5, "metric": "heldout/reward"}, []),
        ({"kind": "hours", "value": 1}, ["budget.kind"]),
        ({"kind": "steps", "value": 5 * 10**7}, ["budget.value"]),
    ],
)
def test_budgets_are_checked(budget: dict[str, Any], expected: list[str], team: Team, owner: User) -> None:
    assert fields(make_grid(team, owner, RATE, budget=budget)) == expected


def test_a_budget_in_steps_leaves_no_steps_to_a_level(team: Team, owner: User) -> None:
    steps = {"name": "Steps", "levels": [level("a", training__max_steps=10), level("b")]}
    assert fields(make_grid(team, owner, steps, budget={"kind": "steps", "value": 5})) == ["factors.0.levels"]


def test_a_grid_has_a_limit_of_runs_that_more_seeds_keep_to(grid: Ablation, team: Team, owner: User) -> None:
    assert fields(make_grid(team, owner, TRAINER, RATE, seeds=31)) == ["seeds"]
    assert add_seeds(grid, owner, 1).seeds == 3
    assert grid.members.count() == 12
    with pytest.raises(SpecError, match=f"at most {MOST_GRID_RUNS}: choose at most 27 more seeds"):
        add_seeds(grid, owner, 28)


def test_runs_stopped_together_are_resumed_together(grid: Ablation, as_owner: Client) -> None:
    finish(grid.in_order()[0], heldout_accuracy=[(0, 0.1)])
    assert request_ablation_stop(grid) == 7
    assert "Resume 7 stopped or failed" in as_owner.get(f"/ablations/{grid.pk}/").content.decode()
    assert "7 runs queued again" in as_owner.post(f"/ablations/{grid.pk}/resume/", follow=True).content.decode()
    assert Run.across_teams.filter(status=Status.QUEUED).count() == 7
    assert resume_ablation_runs(grid) == 0
    assert Entry.across_teams.get(action="ablation.resume").details == {"runs": 7}


def test_a_cell_is_the_mean_over_its_finished_seeds_with_the_interval_of_students_t(grid: Ablation) -> None:
    for member in grid.in_order():
        if member.variant == "GRPO · low":
            finish(member, heldout_accuracy=[(0, 0.1), (20, 0.5 + member.seed / 10)])  # 0.8 and 0.9
    cell = matrix(grid)["", "GRPO", "low"]
    assert cell.estimate is not None
    assert (cell.estimate.mean, cell.estimate.count) == (pytest.approx(0.85), 2)
    assert cell.estimate.half == pytest.approx(12.706 * 0.05, rel=1e-4)
    empty = matrix(grid)["", "SFT", "high"]
    assert (empty.estimate, empty.state, empty.shade) == (None, "2 waiting", "")


def test_empty_failed_and_running_cells_say_so(grid: Ablation, as_owner: Client) -> None:
    one, two = (member for member in grid.in_order() if member.variant == "SFT · low")
    Run.across_teams.filter(pk=one.run_id).update(status=Status.FAILED)
    Run.across_teams.filter(pk=two.run_id).update(status=Status.RUNNING)
    for member in grid.in_order():
        if member.variant == "SFT · high":
            finish(member, other=[(1, 1.0)])
    found = matrix(grid)
    assert found["", "SFT", "low"].state == "1 training, 1 failed"
    assert found["", "SFT", "high"].state == "2 without the metric"
    page = as_owner.get(f"/ablations/{grid.pk}/").content.decode()
    assert "1 training, 1 failed" in page
    assert "2 of 8 runs finished, 1 training, 4 waiting, 1 stopped or failed" in page


def fill(grid: Ablation, accuracy: dict[str, float]) -> None:
    """Finishes all runs with the accuracy of their variant; later seeds have 0.01 more each."""
    for member in grid.in_order():
        finish(member, heldout_accuracy=[(0, 0.1), (20, accuracy[member.variant] + 0.01 * (member.seed - 3))])


ACCURACY = {"SFT · low": 0.3, "SFT · high": 0.55, "GRPO · low": 0.4, "GRPO · high": 0.9}


def test_differences_between_two_levels_are_paired_by_seed_with_an_arrow_and_holm(grid: Ablation, as_owner: Client) -> None:
    fill(grid, ACCURACY)
    found = matrix(grid, change="0.0.1")
    low, high = found["", "low", ""], found["", "high", ""]
    assert low.estimate is not None
    assert high.estimate is not None
    assert (low.estimate.mean, high.estimate.mean) == (pytest.approx(0.1), pytest.approx(0.35))
    assert low.estimate.half == pytest.approx(0.0, abs=1e-9), "what the seed adds is taken away"
    assert (low.arrow, low.holds, low.shade, high.shade) == ("up", True, "more-1", "more-4")
    assert len(low.runs) == 2
    page = as_owner.get(f"/ablations/{grid.pk}/", {"change": "0.0.1"}).content.decode()
    assert "Trainer: SFT → GRPO" in page
    assert "+0.35" in page
    assert "↑" in page


def test_gains_are_after_training_minus_before_it_and_a_metric_without_a_before_has_none(grid: Ablation, as_owner: Client) -> None:
    fill(grid, ACCURACY)
    found = matrix(grid, change="gains")
    cell = found["", "SFT", "low"]
    assert cell.estimate is not None
    assert (cell.estimate.mean, cell.estimate.count, cell.shade) == (pytest.approx(0.205), 2, "more-1")
    assert found["", "GRPO", "high"].shade == "more-4"
    page = as_owner.get(f"/ablations/{grid.pk}/", {"change": "gains"}).content.decode()
    assert "After training minus" in page
    assert "+0.805" in page
    page = as_owner.get(f"/ablations/{grid.pk}/", {"change": "gains", "quantity": "wall"}).content.decode()
    assert "no pair yet" in page


def test_values_before_training_are_those_of_the_first_evaluation(grid: Ablation, as_owner: Client) -> None:
    fill(grid, ACCURACY)
    found = matrix(grid, change="before")
    assert {round(cell.estimate.mean, 6) for cell in found.values() if cell.estimate is not None} == {0.1}
    assert "The evaluation before training" in as_owner.get(f"/ablations/{grid.pk}/", {"change": "before"}).content.decode()
    page = as_owner.get(f"/ablations/{grid.pk}/", {"change": "before", "quantity": "wall"}).content.decode()
    assert "0.1" not in page.partition("<table")[2].partition("</table>")[0], "only held-out metrics are measured before"


def test_colours_go_from_the_lowest_to_the_highest_and_the_number_is_always_there(grid: Ablation, as_owner: Client) -> None:
    fill(grid, ACCURACY)
    shades = {key[1:]: cell.shade for key, cell in matrix(grid).items()}
    assert shades == {("SFT", "low"): "shade-0", ("SFT", "high"): "shade-3", ("GRPO", "low"): "shade-1", ("GRPO", "high"): "shade-8"}
    page = as_owner.get(f"/ablations/{grid.pk}/").content.decode()
    for number in ("0.305", "0.555", "0.405", "0.905"):
        assert number in page


def test_below_each_column_stands_the_row_with_the_highest_mean(grid: Ablation, as_owner: Client) -> None:
    assert panels_of(grid)[0].highest == ["", ""], "nothing to compare yet"
    fill(grid, ACCURACY | {"SFT · low": 0.5})
    assert panels_of(grid)[0].highest == ["SFT", "GRPO"]
    page = as_owner.get(f"/ablations/{grid.pk}/").content.decode()
    assert '<th scope="row">Highest</th><td><bdi>SFT</bdi></td><td><bdi>GRPO</bdi></td>' in page
    assert panels_of(grid, rows="1", columns="0")[0].highest == ["high", "high"]


def test_rows_and_columns_can_be_swapped_and_nonsense_is_the_usual_choice(grid: Ablation) -> None:
    assert set(matrix(grid, rows="1", columns="0")) == {("", rate, trainer) for rate in ("low", "high") for trainer in ("SFT", "GRPO")}
    usual = set(matrix(grid))
    for choice in ({"rows": "9", "columns": "x"}, {"rows": "0", "columns": "0"}, {"change": "0.0.9"}, {"change": "1.1.0"}, {"rows": "-1"}):
        assert set(matrix(grid, **choice)) == usual


def test_of_three_factors_the_first_has_a_matrix_for_each_level(transfer_grid: Ablation) -> None:
    assert transfer_grid.members.count() == 8, "a factor that is read adds no runs"
    titles = {title for title, _, _ in matrix(transfer_grid)}
    assert titles == {"Trainer: SFT", "Trainer: GRPO"}


def test_gains_on_the_trained_and_the_other_level_make_the_transfer_ratio(transfer_grid: Ablation, as_owner: Client) -> None:
    gains = {"SFT": (0.4, 0.04), "GRPO": (0.4, 0.2)}
    for member in transfer_grid.in_order():
        trainer, trained = member.variant.split(" · ")
        own, other = gains[trainer]
        noise = 0.01 * (member.seed - 3)
        reached = {name: 0.1 + (own if name == trained else other) + noise for name in ("easy", "hard")}
        finish(member, **{f"heldout_{name}": [(0, 0.1), (20, value)] for name, value in reached.items()})
    found = {(one.rest, one.level): one.ratio for one in read_figures(transfer_grid).list_transfers()}
    assert set(found) == {((trainer,), level) for trainer in gains for level in ("easy", "hard")}
    grpo, sft = found[("GRPO",), "easy"], found[("SFT",), "hard"]
    assert (grpo.own.mean, grpo.others.mean, grpo.count) == (pytest.approx(0.405), pytest.approx(0.205), 2)
    assert grpo.ratio == pytest.approx(0.205 / 0.405)
    assert sft.ratio == pytest.approx(0.045 / 0.405)
    assert grpo.half is not None
    page = as_owner.get(f"/ablations/{transfer_grid.pk}/").content.decode()
    assert "jackknife over seeds" in page
    assert "0.506" in page
    assert 'name="quantity"' not in page, "what is read says the quantity"


def test_judges_on_weak_and_strong_answers_have_their_differences(team: Team, owner: User, as_owner: Client) -> None:
    levels = [{"name": name, "changes": {"task.difficulty": of}} for name, of in (("weak", "easy"), ("strong", "hard"))]
    judges = {"name": "Trained on", "levels": levels}
    read = {"name": "Measured on", "levels": [{"name": name, "metric": f"heldout/{name}"} for name in ("weak", "strong", "unseen")]}
    grid = create_grid(make_grid(team, owner, TRAINER, judges, read))
    accuracies = {"weak": {"weak": 0.80, "strong": 0.70}, "strong": {"weak": 0.79, "strong": 0.78}}
    for member in grid.in_order():
        trainer, judge = member.variant.split(" · ")
        if trainer == "GRPO":
            noise = 0.02 * (member.seed - 3)
            finish(member, **{f"heldout_{name}": [(0, 0.5), (20, value + noise)] for name, value in accuracies[judge].items()})
    found = {(one.rest, one.difference.name, one.difference.judge): one.estimate for one in list_grid_judge_differences(read_figures(grid))}
    expected = {
        ("FutureProof", "weak"): -0.10,
        ("RefreshAdvantage", "strong"): 0.08,
        ("BackCompat", "strong"): -0.01,
        ("CompatShift", "strong"): 0.01,
    }
    assert {key: estimate.mean for key, estimate in found.items()} == {(("GRPO",), *key): pytest.approx(value) for key, value in expected.items()}
    assert {estimate.count for estimate in found.values()} == {2}
    page = as_owner.get(f"/ablations/{grid.pk}/").content.decode()
    assert "Judges over time" in page
    assert "FutureProof" in page


def test_other_grids_have_no_judges(grid: Ablation, transfer_grid: Ablation, as_owner: Client) -> None:
    assert list_grid_judge_differences(read_figures(grid)) == list_grid_judge_differences(read_figures(transfer_grid)) == []
    assert "Judges over time" not in as_owner.get(f"/ablations/{grid.pk}/").content.decode()


def test_a_grid_without_two_like_factors_has_no_transfer(grid: Ablation) -> None:
    assert read_figures(grid).list_transfers() == []


def test_at_a_budget_in_tokens_a_cell_is_read_where_it_had_used_them(team: Team, owner: User) -> None:
    grid = create_grid(make_grid(team, owner, RATE, seeds=1, budget={"kind": "tokens", "value": 1000}))
    slow, fast = grid.in_order()
    evaluations = [(0, 0.1), (10, 0.4), (20, 0.8)]
    finish(slow, heldout_accuracy=evaluations, tokens=[(step, 50.0 * step) for step in range(1, 21)])
    finish(fast, heldout_accuracy=evaluations, tokens=[(step, 90.0 * step) for step in range(1, 21)])
    entries = read_figures(grid).entries
    assert [entries[name,].values[3] for name in ("low", "high")] == [0.8, 0.4]
    assert [entries[name,].short for name in ("low", "high")] == [(), ()]


def test_a_run_that_ends_before_its_budget_is_read_at_its_end_and_told(team: Team, owner: User) -> None:
    grid = create_grid(make_grid(team, owner, RATE, seeds=1, budget={"kind": "reached", "value": 0.5, "metric": "heldout/accuracy"}))
    reached, never = grid.in_order()
    finish(reached, heldout_accuracy=[(0, 0.1), (10, 0.6), (20, 0.9)])
    finish(never, heldout_accuracy=[(0, 0.1), (20, 0.4)])
    found = matrix(grid)
    assert [found["", name, ""].estimate.mean for name in ("low", "high")] == [0.6, 0.4]  # type: ignore[union-attr]
    assert [found["", name, ""].state for name in ("low", "high")] == ["", "1 short of the budget"]


def test_policy_tokens_are_counted_from_lengths_and_the_batch(team: Team, owner: User) -> None:
    grid = create_grid(make_grid(team, owner, RATE, seeds=1, budget={"kind": "written", "value": 64 * 25}))  # 64 completions a step
    member = grid.in_order()[0]
    lengths = [(step, 10.0) for step in range(1, 5)]
    finish(member, **{"completions_mean_length": lengths, "heldout_accuracy": [(0, 0.1), (2, 0.2), (3, 0.3)]})
    assert read_figures(grid).entries["low",].values == {3: 0.2}


def test_the_csv_has_a_row_for_every_cell_and_seed(grid: Ablation, as_owner: Client) -> None:
    fill(grid, ACCURACY)
    answer = as_owner.get(f"/ablations/{grid.pk}/figures.csv", {"quantity": "heldout-accuracy"})
    rows = list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))  # type: ignore[attr-defined]
    assert len(rows) == 8
    first = rows[0]
    assert (first["Trainer"], first["Rate"], first["seed"], first["status"]) == ("SFT", "low", "3", "finished")
    assert (float(first["value"]), float(first["before training"]), first["metric"]) == (0.3, 0.1, "heldout/accuracy")
    assert Entry.across_teams.get(action="ablation.export").details == {"rows": 8, "format": "csv"}


def test_the_csv_of_an_ablation_has_its_variants(team: Team, owner: User, as_owner: Client) -> None:
    ablation = create_ablation(team, owner, "Parts", STACKED, 1)
    body = b"".join(as_owner.get(f"/ablations/{ablation.pk}/figures.csv").streaming_content).decode()  # type: ignore[attr-defined]
    assert [row["Variant"] for row in csv.DictReader(io.StringIO(body))] == ["full", "without rs-grpo", "without siren", "base"]


def test_names_that_people_write_are_text_on_the_page_and_no_formulas_in_the_file(team: Team, owner: User, as_owner: Client) -> None:
    factor = {"name": HOSTILE, "levels": [level("=1+1", training__beta=0.1), level(HOSTILE)]}
    grid = create_grid(make_grid(team, owner, factor, seeds=1))
    fill(grid, {"=1+1": 0.5, HOSTILE: 0.6})
    for query in ({}, {"change": "0.0.1"}):
        page = as_owner.get(f"/ablations/{grid.pk}/", query).content.decode()
        assert HOSTILE not in page
        assert "&lt;img src=x" in page
    assert "'=1+1" in b"".join(as_owner.get(f"/ablations/{grid.pk}/figures.csv").streaming_content).decode()  # type: ignore[attr-defined]


def test_the_page_polls_with_its_choice_while_runs_are_open_and_leads_from_a_number_to_the_runs(grid: Ablation, as_owner: Client) -> None:
    url = f"/ablations/{grid.pk}/"
    part = as_owner.get(url, {"part": "live", "rows": "1"}).content.decode()
    assert f'hx-get="{url}?part=live&amp;rows=1"' in part
    assert "<h1>" not in part
    fill(grid, ACCURACY)
    page = as_owner.get(url).content.decode()
    assert 'hx-trigger="every 4s"' not in page
    assert 'href="#cell-1"' in page
    assert 'id="cell-1"' in page
    member = grid.in_order()[0]
    assert f'href="/runs/{member.run_id}/"' in page
    assert "/compare/?run=1&amp;run=5" in page


FORM = {
    "factor.0.name": "Trainer",
    "factor.0.levels": "SFT: training.trainer = sft\nGRPO:",
    "factor.2.name": "Rate",
    "factor.2.levels": "training.learning_rate = 0.0001\r\ntraining.learning_rate = 0.001",
    "seeds": "2",
    "budget_kind": "steps",
    "budget_value": "12",
}


def test_a_run_leads_to_the_form_which_queues_its_runs_once(as_owner: Client, team: Team, owner: User) -> None:
    source = launch_run(team, owner, SPEC, "source")
    assert f"/ablations/grid/new/?from_run={source.pk}" in as_owner.get(f"/runs/{source.pk}/").content.decode()
    page = as_owner.get("/ablations/grid/new/", {"from_run": source.pk}).content.decode()
    assert "training.learning_rate" in page
    assert "banner warn" not in page, "nothing was entered yet"
    filled = form_values(page, "data-grid-form") | FORM
    plan = as_owner.post("/ablations/grid/new/", {**filled, "part": "plan"}).content.decode()
    assert "8 runs" in plan
    assert "<h1>" not in plan
    assert "SFT · 0.0001" in plan
    first, second = (as_owner.post("/ablations/grid/new/", {**filled, "act": "launch", "name": "mine"}) for _ in range(2))
    assert first.headers["Location"] == second.headers["Location"]
    grid = Ablation.across_teams.get()
    assert (grid.name, grid.seeds, grid.source, grid.members.count(), grid.budget) == ("mine", 2, source, 8, {"kind": "steps", "value": 12})
    assert "0 of 8 runs finished" in as_owner.get(first.headers["Location"]).content.decode()
    member = grid.in_order()[0]
    assert "In the grid" in as_owner.get(f"/runs/{member.run_id}/").content.decode()
    listed = as_owner.get("/ablations/").content.decode()
    assert "mine" in listed
    assert '<span class="badge">grid</span>' in listed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"factor.0.levels": "nonsense"}, "Trainer: Line 1: write path = value"),
        ({"factor.2.levels": "training.learning_rate = 5\ntraining.learning_rate = 0.1"}, "Rate: “5”: training.learning_rate"),
        ({"budget_value": ""}, "Budget: Must be a number"),
        ({"seeds": "99"}, "a grid has at most 120"),
        ({"seeds": "9" * 5000}, "At least one seed is needed"),
        ({"factor.0.levels": "none: task.name = no_such_task\neasy:"}, "Trainer: “none”: task.name"),
        ({"factor.0.levels": "", "factor.0.name": ""}, ""),
    ],
)
def test_the_form_says_what_is_wrong_where_it_stands(changes: dict[str, str], words: str, as_owner: Client) -> None:
    answer = as_owner.post("/ablations/grid/new/", {"spec": json.dumps(SPEC), "token": "t", "act": "launch", **FORM, **changes})
    assert answer.status_code == (422 if words else 302)
    assert words in answer.content.decode()
    assert Ablation.across_teams.exists() == (not words)


def test_without_a_start_it_offers_runs_and_recipes_and_what_is_nothing_is_not_found(as_owner: Client, team: Team, owner: User) -> None:
    run = launch_run(team, owner, SPEC, "source")
    page = as_owner.get("/ablations/grid/new/").content.decode()
    assert f"/ablations/grid/new/?from_run={run.pk}" in page
    assert "?recipe=grpo" in page
    assert as_owner.get("/ablations/grid/new/", {"recipe": "grpo"}).status_code == 200
    for query in ({"recipe": "none"}, {"recipe": "demo"}, {"spec": "[]"}, {"from_run": "x"}):
        assert as_owner.get("/ablations/grid/new/", query).status_code == 404, query


def test_the_launch_form_leads_to_a_grid_of_what_it_holds(as_owner: Client) -> None:
    page = as_owner.get("/launch/grpo/").content.decode()
    filled = form_values(page, "data-launch") | {"stages.0.training.max_steps": "33"}
    answer = as_owner.post("/ablations/grid/new/", filled)
    assert answer.status_code == 200
    carried = form_values(answer.content.decode(), "data-grid-form")
    assert json.loads(carried["spec"])["training"]["max_steps"] == 33
    assert not Run.across_teams.exists()


def test_another_teams_grid_is_not_found(grid: Ablation, as_stranger: Client) -> None:
    for path in ("", "figures.csv"):
        assert as_stranger.get(f"/ablations/{grid.pk}/{path}").status_code == 404
    assert as_stranger.post(f"/ablations/{grid.pk}/resume/").status_code == 404
    source = grid.in_order()[0].run
    assert as_stranger.get("/ablations/grid/new/", {"from_run": source.pk}).status_code == 404
