"""The sampler of mutations: which changes there are, what Q-learning makes of trials, and that it climbs."""

import math
import random
import statistics
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lab.training.sweeps.mutation_sampler import (
    DOWN,
    FIRST,
    OTHER,
    UP,
    MutationSampler,
    change_value,
    find_change,
    has_room,
    learn_values,
    list_actions,
    trace_lines,
)

RATE, COUNT, KIND = FloatDistribution(1e-5, 1e-1, log=True), IntDistribution(1, 16), CategoricalDistribution(("a", "b", "c"))
SPACE: dict[str, BaseDistribution] = {"rate": RATE, "count": COUNT, "kind": KIND}
optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_there_is_a_change_up_and_down_of_numbers_and_one_of_a_choice() -> None:
    assert list_actions(SPACE) == [("rate", UP), ("rate", DOWN), ("count", UP), ("count", DOWN), ("kind", OTHER)]


@given(st.sampled_from([UP, DOWN]), st.floats(1e-5, 1e-1), st.integers(1, 16), st.integers(0, 1000))
def test_a_changed_value_is_in_its_range_and_on_the_side_of_the_move(move: str, rate: float, count: int, seed: int) -> None:
    for value, distribution in ((rate, RATE), (count, COUNT)):
        if not has_room(value, move, distribution):
            continue
        changed = change_value(value, move, distribution, random.Random(seed))
        assert distribution.low <= changed <= distribution.high
        assert changed >= value if move == UP else changed <= value
        assert isinstance(changed, type(value))
    assert change_value(count, move, COUNT, random.Random(seed)) != count or not has_room(count, move, COUNT)
    assert change_value("a", OTHER, KIND, random.Random(seed)) in ("b", "c")


def test_a_change_is_read_off_the_values() -> None:
    parent = {"rate": 0.1, "count": 4, "kind": "a"}
    assert find_change(parent, {**parent, "count": 3}) == ("count", DOWN)
    assert find_change(parent, {**parent, "kind": "c"}) == ("kind", OTHER)
    assert find_change(parent, parent) is None
    assert find_change(parent, {"rate": 0.2, "count": 5, "kind": "a"}) is None


def test_the_worked_example() -> None:
    values: list[dict[str, Any]] = [{"count": 4, "kind": "a"}, {"count": 5, "kind": "a"}, {"count": 5, "kind": "b"}, {"count": 6, "kind": "a"}]
    scores = [0.0, 0.5, 0.25, 1.0]
    lines = trace_lines(values, scores)
    assert lines == [(None, None), (0, ("count", UP)), (1, ("kind", OTHER)), (1, ("count", UP))]
    table = learn_values(lines, scores, list_actions(SPACE))
    assert table == {
        (None, ("count", UP)): 0.25,
        (("count", UP), ("kind", OTHER)): -0.125,
        (("count", UP), ("count", UP)): 0.25,
    }
    assert learn_values(lines, [1.0] * 4, list_actions(SPACE)) == {}


def run_study(sampler: str, seed: int, direction: str = "maximize", trials: int = 30) -> optuna.Study:
    """A smooth score with its best at rate 1e-3, count 12 and kind b."""
    study = optuna.create_study(direction=direction)
    for number in range(trials):
        own = f"{seed}/{number}"
        study.sampler = MutationSampler(SPACE, hash_seed(own)) if sampler == "mutations" else optuna.samplers.RandomSampler(seed=hash_seed(own))
        asked = study.ask(SPACE)
        rate, count, kind = (asked.params[name] for name in SPACE)
        score = -abs(math.log10(rate) + 3) - abs(count - 12) / 4 - (kind != "b")
        study.tell(asked, score if direction == "maximize" else -score)
    return study


def hash_seed(text: str) -> int:
    return random.Random(text).randrange(2**31)


def test_it_climbs_higher_than_chance_in_as_many_trials() -> None:
    found = {name: statistics.mean(run_study(name, seed).best_value for seed in range(12)) for name in ("mutations", "random")}
    assert found["mutations"] > found["random"] + 0.1


def test_children_change_one_value_and_are_no_trial_again() -> None:
    study = run_study("mutations", 0)
    params = [trial.params for trial in study.trials]
    assert all(params[number] not in params[:number] for number in range(len(params)))
    changes = [any(find_change(earlier, child) for earlier in params[:number]) for number, child in enumerate(params)]
    assert all(changes[FIRST:])


def test_what_is_to_be_small_is_climbed_down() -> None:
    assert run_study("mutations", 1, "minimize").best_params == run_study("mutations", 1).best_params


@pytest.mark.parametrize("distribution", [CategoricalDistribution(("only",)), IntDistribution(3, 3)])
def test_a_space_of_one_point_is_answered_with_it(distribution: BaseDistribution) -> None:
    study = optuna.create_study()
    for number in range(FIRST + 2):
        study.sampler = MutationSampler({"it": distribution}, number)
        study.tell(study.ask({"it": distribution}), 0.0)
    assert len({trial.params["it"] for trial in study.trials}) == 1
