"""The worker's accelerate configuration: what its processes are given, and what is refused."""

import pytest

from trainers.attempt.accelerate_configuration import VARIABLE, find_accelerate_file, read_accelerate_environment
from trainers.contract.problems import SpecError

DEEPSPEED = """
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: {stage}
  offload_optimizer_device: cpu
mixed_precision: bf16
num_processes: 8
"""


def test_processes_are_given_what_accelerate_launch_would_give_them(tmp_path):
    file = tmp_path / "accelerate.yaml"
    file.write_text(DEEPSPEED.format(stage=2))
    given = read_accelerate_environment(file, 2)
    assert given["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert given["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "2"
    assert given["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"] == "cpu"
    assert "ACCELERATE_MIXED_PRECISION" not in given  # the run's precision holds


@pytest.mark.parametrize(
    ("text", "says"),
    [(DEEPSPEED.format(stage=3), "ZeRO stage 3"), ("distributed_type: [", "accelerate cannot use"), ("surprise: 1\n", "accelerate cannot use")],
)
def test_a_file_that_does_not_do_is_refused_with_the_field(tmp_path, text, says):
    file = tmp_path / "accelerate.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as refused:
        read_accelerate_environment(file, 2)
    assert refused.value.problems[0].field == "resources.sharding"
    assert says in str(refused.value)


def test_a_worker_without_a_configuration_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SpecError, match=VARIABLE):
        find_accelerate_file()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.yaml"))
    with pytest.raises(SpecError, match="no file"):
        find_accelerate_file()
