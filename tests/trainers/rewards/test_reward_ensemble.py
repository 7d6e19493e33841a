"""Several reward models as one: the card's number, whose opinion is missing, and the folders that are not there. The models are stand-ins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.rewards.scoring import DEFINITION, library, make_example
from trainers.contract.reward_definitions import LibraryReward
from trainers.rewards import reward_model
from trainers.rewards.composition import build_reward
from trainers.rewards.definition_checks import find_definition_problems
from trainers.rewards.reward_ensemble import discount_disagreement
from trainers.rewards.scores import ScoringContext


class Model:
    """Says the number that its folder is called; of an empty text nothing."""

    def __init__(self, number):
        self.number = number

    def tokenize(self, prompt, completion):
        if not completion and self.number > 0.5:
            raise ValueError("there is nothing to read")
        return [len(completion)]

    def score(self, rows):
        return [self.number * length for (length,) in rows]


@pytest.fixture
def models(monkeypatch):
    monkeypatch.setattr(reward_model.RewardModelScore, "load", lambda self: Model(float(self.parameters.folder)))


def score(texts, **config):
    scorer = build_reward(DEFINITION.validate_python(library("reward-ensemble", folders=["1.0", "0.6", "0.2"], **config)))
    scorer.open(ScoringContext(None, "cpu"))
    return scorer.score_batch([(text, make_example()) for text in texts])


def test_the_worked_example_of_the_card(models):
    assert [one.value for one in score(["x", "xx"])] == [pytest.approx(0.2734, abs=1e-4), pytest.approx(2 * 0.2734, abs=2e-4)]
    assert score(["x"], kappa=0.0)[0].value == pytest.approx(0.6)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=6), st.floats(0, 10))
def test_disagreement_never_pays(values, kappa):
    made = discount_disagreement(values, kappa)
    assert made <= sum(values) / len(values) + 1e-6
    assert discount_disagreement([values[0]] * 3, kappa) == pytest.approx(values[0])


def test_where_one_model_has_no_opinion_there_is_none(models):
    empty, other = score(["", "x"])
    assert empty.value is None
    assert "there is nothing to read" in empty.error
    assert other.value is not None


def test_folders_that_are_no_reward_runs_are_refused(tmp_path):
    definition = LibraryReward(function="reward-ensemble", config={"folders": [str(tmp_path), str(tmp_path / "other")]})
    problems = find_definition_problems(definition, "here")
    assert [problem.field for problem in problems] == ["here.config.folders"] * 2
    assert {str(problem.value) for problem in problems} == {str(tmp_path), str(tmp_path / "other")}
    (alone,) = find_definition_problems(LibraryReward(function="reward-ensemble", config={"folders": [str(tmp_path)]}), "here")
    assert "folders" in alone.field
