"""Loading a policy: a folder with safetensors, a tokenizer and a chat template, wherever it came from. No code of the policy's is ever run."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import trainers.masked.model  # noqa: F401  so that transformers knows folders of masked policies
from trainers.contract import policy_folder
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import FolderPolicy, HubPolicy, Lora, RunPolicy, RunSpec

# What is fetched from a hub repository: data and its card only, and only the model's own folder (other layouts lie in sub-folders).
HUB_FILES = ["README.md", "*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
NOT_HUB_FILES = ["*/*"]


@dataclass
class Policy:
    """A loaded policy. ``folder`` holds the weights it starts from: a reference policy is loaded from there again."""

    model: Any
    tokenizer: Any
    folder: Path
    device: torch.device
    bf16: bool

    @property
    def parameters(self) -> int:
        return int(self.model.num_parameters())  # of 4-bit weights too, which are packed

    def special_tokens(self) -> dict[int, str]:
        tokenizer = self.tokenizer
        return dict(zip(tokenizer.convert_tokens_to_ids(tokenizer.all_special_tokens), tokenizer.all_special_tokens, strict=True))


def make_policy_error(value: object, message: str, fix: str, field: str = "policy") -> SpecError:
    return SpecError([Problem(field, str(value), message, fix)])


def choose_device(spec: RunSpec) -> tuple[torch.device, bool]:
    """Where to train and whether in bf16. Raises SpecError when the spec asks for what this machine has not got."""
    cuda = torch.cuda.is_available()
    if spec.device == "cuda" and not cuda:
        raise make_policy_error("cuda", "this machine has no CUDA device that torch can use", "set device to auto or cpu", "device")
    device = torch.device("cuda" if cuda and spec.device != "cpu" else "cpu")
    able = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if spec.precision == "bf16" and device.type == "cuda" and not able:
        raise make_policy_error("bf16", "this GPU has no bf16", "set precision to auto or fp32", "precision")
    return device, spec.precision == "bf16" or (spec.precision == "auto" and able)


def find_policy_folder(policy: HubPolicy | FolderPolicy | RunPolicy) -> Path:
    """The local folder of a policy, fetched first when it is on the hub. Raises SpecError."""
    if isinstance(policy, HubPolicy):
        return fetch_hub_policy(policy)
    folder = policy.path() if isinstance(policy, RunPolicy) else Path(policy.path)
    if not folder.is_dir():
        fix = "wait until that run has written it, or choose another checkpoint" if isinstance(policy, RunPolicy) else "give the path of a folder"
        raise make_policy_error(folder, "there is no such folder", fix, "policy.folder" if isinstance(policy, RunPolicy) else "policy.path")
    return folder


def fetch_hub_policy(policy: HubPolicy) -> Path:
    """Data files of a hub repository, from the local cache when ``HF_HUB_OFFLINE`` is set. Raises SpecError."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return Path(snapshot_download(policy.name, revision=policy.revision, allow_patterns=HUB_FILES, ignore_patterns=NOT_HUB_FILES))
    except GatedRepoError:
        fix = "accept its terms on the hub and set HF_TOKEN"
        raise make_policy_error(policy.name, "access to this repository has to be asked for", fix, "policy.name") from None
    except RepositoryNotFoundError:
        raise make_policy_error(
            policy.name, "the hub has no such repository, or it is private", "correct the name, or set HF_TOKEN", "policy.name"
        ) from None
    except RevisionNotFoundError:
        raise make_policy_error(
            policy.revision, f"{policy.name} has no such revision", "use a branch, tag or commit it has", "policy.revision"
        ) from None
    except LocalEntryNotFoundError:
        if HF_HUB_OFFLINE:
            fix = "unset HF_HUB_OFFLINE, or download it on a machine with a network"
            raise make_policy_error(policy.name, "it is not in the local cache and HF_HUB_OFFLINE is set", fix, "policy.name") from None
        raise make_policy_error(
            policy.name, "the hub cannot be reached and the local cache does not have it", "check the network", "policy.name"
        ) from None


def check_policy_folder(folder: Path) -> None:
    """Raises SpecError with everything that keeps the folder from being a policy."""
    problems = policy_folder.inspect_policy_folder(folder, "policy").problems
    if problems:
        raise SpecError(problems)


def load_policy(folder: Path, spec: RunSpec) -> Policy:
    """The policy in ``folder`` on the spec's device. Raises SpecError naming what is wrong with it."""
    device, bf16 = choose_device(spec)
    check_policy_folder(folder)
    tokenizer = load_tokenizer(folder)
    quantize = spec.lora is not None and spec.lora.quantize
    model = load_model(folder, weights_dtype(bf16, spec.lora), **build_loading_options(spec, device))
    return Policy(model if quantize else model.to(device), tokenizer, folder, device, bf16)


def build_loading_options(spec: RunSpec, device: torch.device) -> dict[str, Any]:
    """What a spec says of how weights are loaded, as arguments of ``from_pretrained``. Weights in 4 bits are put on the device right away."""
    options: dict[str, Any] = {} if spec.attn_implementation == "auto" else {"attn_implementation": spec.attn_implementation}
    if spec.lora is not None and spec.lora.quantize:
        from transformers import BitsAndBytesConfig

        four_bits = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": torch.bfloat16}
        options |= {"quantization_config": BitsAndBytesConfig(load_in_4bit=True, **four_bits), "device_map": {"": device}}
    return options


def weights_dtype(bf16: bool, lora: Lora | None) -> torch.dtype:
    """bf16 weights only under adapters: an optimiser's small updates are lost in bf16, so trained weights stay fp32 and autocast computes in bf16."""
    return torch.bfloat16 if bf16 and lora is not None else torch.float32


def load_model(folder: Path, dtype: torch.dtype, **options: Any) -> Any:
    """Weights of a folder; adapters of a LoRA checkpoint merged into the policy they were trained on. ``options`` of ``from_pretrained`` hold for
    whole weights. Raises SpecError."""
    if (folder / "adapter_config.json").is_file():
        return load_merged(folder, dtype)
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, local_files_only=True, **options
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        fix = "use a causal language model that transformers has built in"
        raise make_policy_error(folder, f"the weights cannot be loaded: {one_line(error)}", fix) from error


def base_of(folder: Path) -> Path | None:
    """The policy that a folder's adapters were trained on; None where it holds none."""
    file = folder / "adapter_config.json"
    return Path(json.loads(file.read_text())["base_model_name_or_path"] or "") if file.is_file() else None


def load_merged(folder: Path, dtype: torch.dtype) -> Any:
    from peft import PeftModel

    base = base_of(folder)
    if base is None or not base.is_dir():
        raise make_policy_error(
            folder, f"it holds LoRA adapters for {base}, which is not there", "choose the run's final policy: adapters are merged into it"
        )
    check_policy_folder(base)
    merged = PeftModel.from_pretrained(load_model(base, dtype), folder, use_safetensors=True).merge_and_unload()
    return merged.requires_grad_(True)  # adapters had frozen it


def merge_adapters(folder: Path, into: Path) -> Path:
    """A folder with the whole policy: ``folder`` itself, or ``into`` with its adapters merged. A reference is loaded from a folder too."""
    if not (folder / "adapter_config.json").is_file():
        return folder
    if not into.is_dir():
        partial = into.with_name(f".{into.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        check_policy_folder(folder)
        export_policy(load_model(folder, torch.float32), load_tokenizer(folder), partial)
        partial.rename(into)
    return into


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer, padding on the left. Raises SpecError when it is missing, or has no chat template or end token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True, padding_side="left")
    except (OSError, ValueError, KeyError) as error:
        raise make_policy_error(
            folder, f"the tokenizer cannot be loaded: {one_line(error)}", "put tokenizer.json and tokenizer_config.json there"
        ) from error
    if tokenizer.eos_token_id is None:
        raise make_policy_error(folder, "the tokenizer has no end-of-sequence token", "set eos_token in tokenizer_config.json")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token  # as TRL does
    # With these, TRL would hand reward functions a completion without its reasoning; a task sees all that the policy wrote.
    tokenizer.response_template = tokenizer.response_schema = None
    return tokenizer


def build_lora_config(lora: Lora, task_type: str = "CAUSAL_LM", **more: Any) -> Any:
    """peft's configuration of a spec's adapters; ``more`` of its settings where the network is not only a language model."""
    from peft import LoraConfig

    layers: str | list[str] = "all-linear" if lora.target_modules == ["all-linear"] else lora.target_modules
    return LoraConfig(r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=layers, task_type=task_type, **more)


def export_policy(model: Any, tokenizer: Any, folder: Path, base: Path | None = None, weights: dict[str, Any] | None = None) -> None:
    """Writes a policy that anything can load: adapters merged, safetensors, tokenizer with its chat template. Ends the model's training.

    Adapters on 4-bit weights are merged into the weights of ``base``, the folder they came from, in bf16: merged into the 4-bit ones they would be
    rounded to 4 bits. ``weights``: to write in the place of the model's own.
    """
    from peft import PeftModel

    if isinstance(model, PeftModel):
        is_quantized = getattr(model.get_base_model(), "is_quantized", False)
        model = merge_into(base, model, folder) if is_quantized and base is not None else model.merge_and_unload()
    model.save_pretrained(folder, safe_serialization=True, state_dict=weights)
    tokenizer.save_pretrained(folder)


def link_policy(source: Path, folder: Path) -> None:
    """Puts the files of a policy of whole weights into another folder, byte for byte: as further names of the same files where the disk allows it."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted({file for pattern in HUB_FILES for file in source.glob(pattern)}):
        target = folder / file.name
        target.unlink(missing_ok=True)
        try:
            os.link(file.resolve(), target)  # a snapshot of the hub's cache holds symbolic links
        except OSError:  # another disk, or one without hard links
            shutil.copyfile(file, target)


def merge_into(base: Path, model: Any, folder: Path) -> Any:
    """The weights of ``base`` with the adapters of ``model``, which pass through a folder beside ``folder``."""
    from peft import PeftModel

    adapters = folder.with_name(f"{folder.name}.adapters")
    shutil.rmtree(adapters, ignore_errors=True)
    try:
        model.save_pretrained(adapters)
        return PeftModel.from_pretrained(load_model(base, torch.bfloat16), adapters, use_safetensors=True).merge_and_unload()
    finally:
        shutil.rmtree(adapters, ignore_errors=True)


def compute_folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(os.path.getsize(Path(place) / name) for place, _, names in os.walk(folder) for name in names)


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
