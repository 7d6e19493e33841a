"""Methods on pairs that remember something go on after an interruption exactly as if there had been none."""

import pytest

from tests.trainers.conftest import make_spec
from tests.trainers.methods import pair_files
from tests.trainers.test_resume import learned, outcomes, run_until
from trainers.attempt import train

STEPS = 6
CONFIGS = {
    "dpo-pop": {"tau": 0.5},
    "metaapo": {"rounds": 2, "meta_every": 3, "answers": 2},
    "atlas-evodpo": {"phase_steps": 4, "candidates": 2, "gate_size": 4, "least_gain": -9.0, "most_divergence": 9.0},
    "scpo-semantic-curriculum": {"stages": 2},
    "sail": {"layers": 1},
}


@pytest.mark.parametrize("method", CONFIGS)
@pytest.mark.training
def test_an_interrupted_run_equals_one_that_was_not(tmp_path, method):
    dataset = pair_files.write(tmp_path, pair_files.rows(24, flip_every=3, strength=lambda place: place % 5))
    recipe = {"methods": [{"name": method, "config": CONFIGS[method]}], "dataset": dataset, "training__max_steps": STEPS}
    folders = [tmp_path / name for name in ("whole", "broken")]
    whole, broken = (make_spec(folder, "dpo", training__learning_rate=1e-3, **recipe) for folder in folders)
    assert train.run_training(whole, folders[0]) == train.FINISHED
    assert run_until(broken, folders[1], 4) == train.STOPPED
    assert train.run_training(broken, folders[1]) == train.FINISHED
    assert outcomes(folders[1]) == ["stopped", "finished"]
    one, other = learned(folders[0]), learned(folders[1])
    assert one.keys() == other.keys()
    for step in one:
        once = {"attention", "drift", "focal", "adherence_chosen", "adherence_rejected"}  # said with the first step of an attempt
        same = [name for name in one[step] if not once & set(name.split("/"))]
        assert {name: other[step].get(name) for name in same} == {name: one[step][name] for name in same}
