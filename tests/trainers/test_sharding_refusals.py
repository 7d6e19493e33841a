"""Weights shared between processes: what is refused before a model loads, with the field and the fix."""

from pathlib import Path

import pytest

from tests.trainers.conftest import make_spec
from trainers.catalog.entries import built_in_entries
from trainers.checks.machine_needs import find_machine_problems
from trainers.contract import stacking
from trainers.contract.machine import Machine
from trainers.contract.problems import SpecError

SHARED = {"resources__sharding": "fsdp2", "device": "auto"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "one process has nobody to share weights with"),
        ({"resources__processes": 2, "lora": {"r": 4}}, "adapters are trained with all weights"),
        ({"resources__processes": 2, "device": "cpu"}, "weights are sharded over GPUs"),
    ],
)
def test_a_spec_that_cannot_share_weights_is_refused(tmp_path, changes, says):
    with pytest.raises(SpecError) as refused:
        make_spec(tmp_path, **SHARED | changes)
    assert [(problem.field, problem.value) for problem in refused.value.problems] == [("resources.sharding", "fsdp2")]
    assert says in str(refused.value)


@pytest.mark.parametrize(("name", "trainer", "hook"), [("kimi-k15", "grpo", "reference"), ("orthalign", "dpo", "gradients")])
def test_a_method_that_works_on_whole_weights_is_refused(name, trainer, hook):
    spec = make_spec(Path("unused"), trainer, resources__processes=2, methods=[{"name": name}], **SHARED)
    found = [problem.message for problem in stacking.check_stack(spec, built_in_entries()).problems if problem.field == "resources.sharding"]
    assert len(found) == 1
    assert f"({hook})" in found[0]
    whole = make_spec(Path("unused"), trainer, resources__processes=2, methods=[{"name": name}])
    assert not any(problem.field == "resources.sharding" for problem in stacking.check_stack(whole, built_in_entries()).problems)


def test_a_machine_without_a_gpu_is_named():
    spec = make_spec(Path("unused"), resources__processes=2, **SHARED)
    found = list(find_machine_problems(spec, Machine(name="worker-3", gpu=False)))
    assert [problem.field for problem in found] == ["resources.sharding"]
    assert "worker-3" in found[0].message
    assert not list(find_machine_problems(spec, Machine(name="worker-3", gpu=True)))
