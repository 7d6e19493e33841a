"""Factors of a grid: levels as text, fields by their paths, the cells, budgets, and the ratio of transferred gains. Nothing here needs a database."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp
from statsmodels.stats.multitest import multipletests

from lab.training.ablations.budgets import REACHED, TOKENS, WRITTEN, Budget, count_step_completions, find_cut
from lab.training.ablations.factor_text import LevelTextError, parse_levels, write_levels
from lab.training.ablations.factors import Factor, FieldPathError, Level, apply_changes, count_cells, list_cells, read_factors
from lab.training.ablations.intervals import adjust_holm, compute_zero_p, estimate_mean_interval, t_quantile
from lab.training.ablations.transfer import estimate_transfer_ratio
from lab.training.runs.metrics import Series
from trainers.contract.hyperparameters import GRPO

SPEC: dict[str, Any] = {
    "task": {"name": "mini_gsm", "difficulty": "easy"},
    "training": {"trainer": "grpo", "max_steps": 20, "num_generations": 4},
    "base": {"name": "dr-grpo"},
    "methods": [{"name": "rs-grpo"}, {"name": "kimi-k2.5", "config": {"x": 1}}],
    "seed": 7,
}
PATHS = st.sampled_from(["seed", "training.beta", "methods.0.config.x", "methods.kimi-k2.5.config.y", "base"])
SIMPLE = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(-1e3, 1e3) | st.text("ab ;=:.\"'é0[{", max_size=8)
VALUES = SIMPLE | st.lists(SIMPLE, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=3), SIMPLE, max_size=2)
NAMES = st.text("abcXYZ 019-äé", min_size=1, max_size=12).map(lambda text: " ".join(text.split())).filter(bool)


@given(st.lists(st.tuples(NAMES, st.dictionaries(PATHS, VALUES, max_size=3)), max_size=4))
def test_levels_read_back_as_they_were_written(drawn: list[tuple[str, dict[str, Any]]]) -> None:
    levels = tuple(Level(name, tuple(changes.items())) for name, changes in drawn)
    assert parse_levels(write_levels(levels)) == levels


def test_a_line_is_a_level_with_its_name_or_with_its_values_as_the_name() -> None:
    text = """SFT: training.trainer = sft; training.max_steps = 30

        as it is:
        training.beta = 0.1; task.difficulty = hard
        bare: methods = [{"name": "a;b"}]"""
    assert parse_levels(text) == (
        Level("SFT", (("training.trainer", "sft"), ("training.max_steps", 30))),
        Level("as it is"),
        Level("0.1, hard", (("training.beta", 0.1), ("task.difficulty", "hard"))),
        Level("bare", (("methods", [{"name": "a;b"}]),)),
    )
    assert parse_levels("b: read = heldout/correct_b") == (Level("b", metric="heldout/correct_b"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: b", "line 1: write path = value"),
        ("a: b = 1\nc: d =", "line 2: a value is missing"),
        ("a: b = 1; b = 2", "given twice"),
        (":", "needs a name"),
        ("x: read = heldout/a; b = 1", "either reads a metric or changes"),
        ("x: read = 3", "needs the name of a metric"),
        ("x: ; b = 1", "with semicolons"),
    ],
)
def test_a_line_that_says_no_level_is_refused_with_its_number(text: str, reason: str) -> None:
    with pytest.raises(LevelTextError, match=reason):
        parse_levels(text)


def test_fields_are_changed_by_their_paths_and_the_recipe_stays_as_it_is() -> None:
    before = repr(SPEC)
    changed = apply_changes(
        SPEC,
        [
            ("methods.kimi-k2.5.config.x", 2),
            ("methods.0.config.weight", 0.5),
            ("task.options.junk", 0.2),
            ("training.max_steps", 9),
            ("base", {"name": "dapo"}),
        ],
    )
    assert changed["methods"] == [{"name": "rs-grpo", "config": {"weight": 0.5}}, {"name": "kimi-k2.5", "config": {"x": 2}}]
    assert (changed["task"]["options"], changed["training"]["max_steps"], changed["base"]) == ({"junk": 0.2}, 9, {"name": "dapo"})
    assert repr(SPEC) == before


def test_a_whole_object_comes_before_the_fields_in_it_whatever_their_order() -> None:
    changes = [("base.config.x", 1), ("base", {"name": "dapo"})]
    assert apply_changes(SPEC, changes)["base"] == apply_changes(SPEC, changes[::-1])["base"] == {"name": "dapo", "config": {"x": 1}}


def test_another_trainer_comes_with_its_own_defaults_and_the_same_steps() -> None:
    changed = apply_changes(SPEC, [("training.learning_rate", 0.01), ("training.trainer", "sft")])
    assert changed["training"] == {"trainer": "sft", "max_steps": 20, "learning_rate": 0.01}
    assert changed["methods"] == []
    assert "base" not in changed
    assert apply_changes(SPEC, [("training.trainer", "grpo")]) == SPEC


@pytest.mark.parametrize("path", ["methods.siren.config.x", "methods.5.name", "task.name.first", "seed.x"])
def test_a_path_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(FieldPathError):
        apply_changes(SPEC, [(path, 1)])


def test_cells_are_all_combinations_and_a_factor_that_is_read_adds_none() -> None:
    lr = Factor("lr", (Level("low", (("training.learning_rate", 1e-4),)), Level("high", (("training.learning_rate", 1e-2),))))
    size = Factor("size", tuple(Level(str(n), (("training.num_generations", n),)) for n in (2, 4, 8)))
    read = Factor("on", (Level("a", metric="heldout/a"), Level("b", metric="heldout/b")))
    cells = list_cells([lr, read, size], steps=33)
    assert [cell.name for cell in cells] == ["low · 2", "low · 4", "low · 8", "high · 2", "high · 4", "high · 8"]
    assert count_cells([lr, read, size]) == 6
    spec = cells[-1].spec(SPEC, 2)
    assert (spec["training"], spec["seed"]) == ({**SPEC["training"], "learning_rate": 1e-2, "num_generations": 8, "max_steps": 33}, 9)
    assert read_factors([factor.as_json() for factor in (lr, read, size)]) == [lr, read, size]
    assert list_cells([read]) == []


def curve(*values: float, steps: list[int] | None = None) -> Series:
    return Series("x", np.array(steps or range(1, len(values) + 1)), np.array(values))


@pytest.mark.parametrize(
    ("budget", "series", "step", "is_short"),
    [
        (Budget(TOKENS, 25), curve(10, 20, 30), 2, False),
        (Budget(TOKENS, 20), curve(10, 20, 30), 2, False),
        (Budget(TOKENS, 5), curve(10, 20, 30), 0, False),
        (Budget(TOKENS, 30), curve(10, 20, 30), None, False),
        (Budget(TOKENS, 31), curve(10, 20, 30), None, True),
        (Budget(TOKENS, 31), None, None, True),
        (Budget(WRITTEN, 9), curve(2, 1, 3), 1, False),  # 4 completions of a step: 8, 12, 24
        (Budget(WRITTEN, 12), curve(2, float("nan"), 1, 3), 3, False),  # a step without a mean wrote nothing that was told
        (Budget(REACHED, 0.5, "m"), curve(0.1, float("nan"), 0.6, 0.4, steps=[0, 5, 10, 15]), 10, False),
        (Budget(REACHED, 0.7, "m"), curve(0.1, 0.6, steps=[0, 5]), None, True),
    ],
)
def test_a_curve_is_cut_where_the_budget_is_used_up(budget: Budget, series: Series | None, step: int | None, is_short: bool) -> None:
    found = find_cut(budget, series, completions=4)
    assert (found.step, found.is_short) == (step, is_short)


@pytest.mark.parametrize(
    ("settings", "processes", "expected"),
    [({}, 1, 64), ({"gradient_accumulation_steps": 2}, 3, 384), ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, 1, 256)],
)
def test_a_step_tells_of_as_many_completions_as_were_generated_for_it(settings: dict[str, Any], processes: int, expected: int) -> None:
    training = GRPO(max_steps=5, per_device_train_batch_size=64, num_generations=8, **settings).model_dump()
    assert count_step_completions(training, processes) == expected
    assert count_step_completions({"trainer": "sft", "max_steps": 5}, 1) == 0
    assert count_step_completions({"trainer": "gone"}, 1) == 0


def test_the_transfer_ratio_is_that_of_the_card() -> None:
    """base (40, 30, 10): RL on the first (60, 45, 20), SFT (50, 32, 10)."""
    rl = estimate_transfer_ratio({"en": {0: 20.0}, "zh": {0: 15.0}, "sw": {0: 10.0}}, "en")
    sft = estimate_transfer_ratio({"en": {0: 10.0}, "zh": {0: 2.0}, "sw": {0: 0.0}}, "en")
    assert rl is not None
    assert sft is not None
    assert (rl.others.mean, rl.ratio, rl.half) == (12.5, 0.625, None)
    assert (sft.others.mean, sft.ratio) == (1.0, 0.1)


def test_without_a_gain_where_it_was_trained_there_is_no_ratio() -> None:
    found = estimate_transfer_ratio({"a": {0: 0.0, 1: 0.0}, "b": {0: 0.1, 1: 0.1}}, "a")
    assert found is not None
    assert (found.ratio, found.half) == (None, None)
    assert estimate_transfer_ratio({"a": {0: 0.5}, "b": {1: 0.1}}, "a") is None, "no seed has both"
    assert estimate_transfer_ratio({"a": {0: 0.5}}, "a") is None


@given(st.lists(st.tuples(st.floats(0.1, 1.0), st.floats(-1.0, 1.0)), min_size=2, max_size=6))
def test_the_interval_of_a_ratio_of_constant_gains_is_that_of_their_mean(drawn: list[tuple[float, float]]) -> None:
    """With the same gain in every seed the ratio is linear in the others, and the jackknife of a mean is its standard error."""
    found = estimate_transfer_ratio({"a": dict.fromkeys(range(len(drawn)), 0.5), "b": {seed: other for seed, (_, other) in enumerate(drawn)}}, "a")
    exact = estimate_mean_interval([2 * other for _, other in drawn])
    assert found is not None
    assert exact is not None
    assert found.ratio == pytest.approx(exact.mean, abs=1e-9)
    assert found.half == pytest.approx(exact.half, abs=1e-6)


def test_the_jackknife_of_two_seeds_by_hand() -> None:
    found = estimate_transfer_ratio({"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 1.0}}, "a")  # left out one: 1/2 and 1/1
    assert found is not None
    assert found.ratio == pytest.approx(2 / 3)
    assert found.half == pytest.approx(t_quantile(1) * 0.25)  # sqrt(1/2 · (.25² + .25²))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(values: list[float]) -> None:
    assert adjust_holm(values) == pytest.approx(list(multipletests(values, method="holm")[1]))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8).filter(lambda values: np.std(values) > 1e-3))
def test_the_p_value_is_that_of_the_t_test(values: list[float]) -> None:
    estimate = estimate_mean_interval(values)
    assert estimate is not None
    assert compute_zero_p(estimate) == pytest.approx(ttest_1samp(values, 0).pvalue, abs=1e-9)


def test_one_value_has_no_p_value_and_equal_ones_are_certain() -> None:
    for values, expected in (([0.5], None), ([0.0, 0.0], 1.0), ([0.5, 0.5], 0.0)):
        estimate = estimate_mean_interval(values)
        assert estimate is not None
        assert compute_zero_p(estimate) == expected
    assert adjust_holm([]) == []
