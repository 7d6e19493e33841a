"""Weights and configurations that would run code when loaded: refused where a policy comes in, and where one leaves.

MLflow CVE-2024-37052, ClearML CVE-2024-24590 (pickled models); torch CVE-2025-32434 (weights_only is no guard); LLaMA-Factory CVE-2025-53002 and
CVE-2026-58116 (trust_remote_code); transformers CVE-2026-5241 and CVE-2024-11392 (code named by a configuration although it is off);
huggingface_hub#4086 (file names with ..); label-studio-ml CVE-2025-5173 (torch.load of a model file).
"""

from __future__ import annotations

import ast
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.lab.policies.making import write_policy
from trainers.contract import policy_folder
from trainers.contract.problems import SpecError
from trainers.contract.spec import HubPolicy, RunSpec, parse_spec
from trainers.policies import loading as policies

ROOT = Path(__file__).resolve().parents[2]

CODE: dict[str, tuple[str, dict[str, Any]]] = {
    "auto_map": ("config.json", {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}),
    "auto_map below": ("config.json", {"text_config": {"auto_map": {"AutoModel": "other/repository--evil.Model"}}}),
    "auto_map in a list": ("config.json", {"towers": [{"auto_map": {"AutoModel": "evil.Model"}}]}),
    "trust_remote_code": ("config.json", {"trust_remote_code": True}),
    "attention of another repository": ("config.json", {"attn_implementation": "evil/flash-attention"}),
    "attention with a revision": ("config.json", {"_attn_implementation": "kernels:evil"}),
    "attention of a part": ("config.json", {"attn_implementation": {"text_config": "evil/attention"}}),
    "experts of another repository": ("config.json", {"experts_implementation": "evil/experts"}),
    "tokenizer": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}),
    "processor": ("processor_config.json", {"auto_map": {"AutoProcessor": "evil.Processor"}}),
    "generation": ("generation_config.json", {"custom_generate": "evil/generate"}),
    "adapters": ("adapter_config.json", {"auto_mapping": {"base_model_class": "Popen", "parent_library": "subprocess"}}),
    "pipelines": ("config.json", {"custom_pipelines": {"text-generation": {"impl": "evil.Pipeline"}}}),
}


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("open('ran', 'w').close()",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "policy"
    write_policy(place, trainer=False)
    return place


def refusals(folder: Path) -> str:
    with pytest.raises(SpecError) as caught:
        policies.check_policy_folder(folder)
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


def test_the_folder_itself_is_taken(folder: Path) -> None:
    policies.check_policy_folder(folder)


@pytest.mark.parametrize("name", CODE)
def test_transformers_cve_2026_5241_configurations_that_name_code_are_refused(folder: Path, name: str) -> None:
    file, config = CODE[name]
    there = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
    (folder / file).write_text(json.dumps({**there, **config}))
    assert file in refusals(folder)


def test_plain_attention_and_false_flags_are_no_code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attn_implementation": "sdpa", "trust_remote_code": False, "auto_map": None}))
    policies.check_policy_folder(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth", "policy.pkl", "last.ckpt"])
def test_clearml_cve_2024_24590_pickled_weights_are_refused_unread(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Evil()))
    assert "pickled weights" in refusals(folder)
    assert not (folder / "ran").exists()


def test_mlflow_cve_2024_37052_a_pickle_called_safetensors_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    assert "not a safetensors file" in refusals(folder)


def test_a_deep_configuration_is_refused_not_followed(folder: Path) -> None:
    nested: Any = {"auto_map": "evil"}
    for _ in range(100):
        nested = {"inner": nested}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "deep": nested}))
    assert "nested too deeply" in refusals(folder)


def test_shards_of_an_index_lie_in_the_folder_itself(folder: Path) -> None:
    (folder.parent / "model-outside.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"weight": "../model-outside.safetensors"}}))
    assert "weight files are missing" in refusals(folder)


def test_huggingface_hub_4086_only_plain_data_files_of_the_top_folder_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def fetched(name: str, **options: Any) -> str:
        asked.update(options, name=name)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetched)
    policies.fetch_hub_policy(HubPolicy(name="some/policy"))
    from huggingface_hub.utils import filter_repo_objects

    there = ["model.safetensors", "config.json", "pytorch_model.bin", "modeling.py", "../../evil.json", "onnx/model.safetensors", "a.pkl", "setup.sh"]
    kept = filter_repo_objects(there, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"])
    assert sorted(kept) == ["config.json", "model.safetensors"]


def test_llama_factory_cve_2026_58116_every_load_says_that_no_code_is_trusted() -> None:
    """Each ``from_pretrained`` of a model or tokenizer in the trainers turns remote code off and takes safetensors only."""
    found = 0
    for path in sorted((ROOT / "trainers").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained"):
                continue
            owner = ast.unparse(node.func.value)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if owner.startswith("Auto"):
                assert given.get("trust_remote_code") == "False", f"{path}:{node.lineno}"
            if "Model" in owner:
                assert given.get("use_safetensors") == "True", f"{path}:{node.lineno}"
            found += 1
    assert found >= 3


def test_no_spec_can_ask_for_remote_code() -> None:
    policy = {"kind": "hub", "name": "a/b", "trust_remote_code": True}
    with pytest.raises(SpecError, match="trust_remote_code"):
        parse_spec({"policy": policy, "task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}})
    assert "trust_remote_code" not in json.dumps(RunSpec.model_json_schema())


def test_code_in_names_every_configuration(folder: Path) -> None:
    for file in policy_folder.CONFIGURATIONS:
        (folder / file).write_text(json.dumps({"auto_map": {"a": "b"}}))
    assert len(policy_folder.code_in(folder)) == len(policy_folder.CONFIGURATIONS)
    (folder / "config.json").write_text("[")
    assert "config.json cannot be read" in policy_folder.code_in(folder)
