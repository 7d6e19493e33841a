"""Loading policies: safetensors and data only, clear refusals, adapters that later stages can go on from."""

import json
import shutil

import pytest
import torch

from tests.trainers.conftest import events_in, make_spec
from trainers.attempt import train
from trainers.contract.events import Metrics
from trainers.contract.problems import SpecError
from trainers.contract.spec import FolderPolicy, HubPolicy, RunPolicy
from trainers.policies import loading as policies
from trainers.policies import tiny

ADAPTERS = {"r": 4, "alpha": 8}


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(tiny.ensure_untrained_policy(), tmp_path / "policy")


def refusal(folder, tmp_path, **overrides):
    with pytest.raises(SpecError) as caught:
        policies.load_policy(folder, make_spec(tmp_path, **overrides))
    assert all(problem.field and problem.fix for problem in caught.value.problems)
    return str(caught.value)


def test_it_loads_a_folder(folder, tmp_path):
    policy = policies.load_policy(folder, make_spec(tmp_path))
    assert policy.model.dtype == torch.float32
    assert policy.tokenizer.padding_side == "left"
    assert policy.special_tokens() == {0: "<|pad|>", 1: "<|im_start|>", 2: "<|im_end|>"}


def test_it_refuses_pickled_weights_even_when_they_would_load(folder, tmp_path):
    model = policies.load_model(folder, torch.float32)
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    message = refusal(folder, tmp_path)
    assert "pickled" in message
    assert str(folder) in message


def test_it_refuses_a_policy_that_brings_code(folder, tmp_path):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    config = json.loads((folder / "config.json").read_text()) | {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    assert "auto_map" in refusal(folder, tmp_path)


def test_it_refuses_an_architecture_it_does_not_know(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "nobody-knows"}
    (folder / "config.json").write_text(json.dumps(config))
    assert "nobody-knows" in refusal(folder, tmp_path)


def test_it_refuses_weights_that_are_torn(folder, tmp_path):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "model.safetensors" in refusal(folder, tmp_path)


def test_it_refuses_a_tokenizer_without_chat_template(folder, tmp_path):
    (folder / "chat_template.jinja").unlink()
    assert "chat template" in refusal(folder, tmp_path)


def test_it_refuses_cuda_where_there_is_none(folder, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    assert "no CUDA device" in refusal(folder, tmp_path, device="cuda")


def test_it_finds_folders_and_runs_and_says_when_they_are_missing(tmp_path):
    (tmp_path / "final").mkdir()
    assert policies.find_policy_folder(FolderPolicy(path=str(tmp_path))) == tmp_path
    assert policies.find_policy_folder(RunPolicy(folder=str(tmp_path))) == tmp_path / "final"
    with pytest.raises(SpecError, match="checkpoint-7"):
        policies.find_policy_folder(RunPolicy(folder=str(tmp_path), checkpoint=7))


def test_it_stays_off_the_network_when_told_to(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SpecError, match="HF_HUB_OFFLINE"):
        policies.find_policy_folder(HubPolicy(name="nobody/no-such-policy"))


@pytest.mark.training
def test_a_later_stage_goes_on_from_adapters_final_and_checkpoint(tmp_path):
    first = tmp_path / "first"
    assert train.run_training(make_spec(first, lora=ADAPTERS, training__max_steps=2, training__learning_rate=0.05), first) == train.FINISHED
    final = policies.load_model(first / "final", torch.float32)
    assert (first / "checkpoints" / "checkpoint-2" / "adapter_model.safetensors").is_file()
    assert not list((first / "checkpoints").rglob("model.safetensors"))  # adapters only
    merged = policies.load_model(first / "checkpoints" / "checkpoint-2", torch.float32)
    ids = torch.arange(3, 30)[None]
    with torch.no_grad():
        assert torch.allclose(final(ids).logits, merged(ids).logits, atol=1e-5)
    for name, checkpoint in (("second", "final"), ("third", 2)):
        folder = tmp_path / name
        start = {"kind": "run", "folder": str(first), "checkpoint": checkpoint}
        assert train.run_training(make_spec(folder, policy=start, training__max_steps=1, training__beta=0.1), folder) == train.FINISHED
        (values,) = [event.values for event in events_in(folder) if isinstance(event, Metrics)]
        assert values["kl"] == pytest.approx(0, abs=1e-6)  # the reference is the policy with its adapters
