"""What a folder must hold to be loaded as a policy, read without torch: configuration, safetensors, tokenizer, chat template, no code of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainers.contract.problems import Problem

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# Keys that name classes to import from the policy's own files, or from anywhere.
CODE_KEYS = frozenset({"auto_map", "auto_mapping", "custom_pipelines", "custom_generate"})
CONFIGURATIONS = (
    "config.json",
    "tokenizer_config.json",
    "generation_config.json",
    "adapter_config.json",
    "processor_config.json",
    "preprocessor_config.json",
)
DEEPEST = 40  # nested lists and objects
LARGEST_HEADER = 100 << 20  # bytes; the safetensors format allows no larger one

REBUILD = "load it once where you trust it with AutoModelForCausalLM.from_pretrained(…) and save_pretrained(…), which writes safetensors"


@dataclass
class PolicyFolder:
    """What was found. ``context``: tokens the policy can attend to, None where its configuration does not say."""

    path: Path
    setting: str  # of the spec, for the problems
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    context: int | None = None

    def refuse(self, message: str, fix: str) -> None:
        self.problems.append(Problem(self.setting, str(self.path), message, fix))

    def json(self, name: str) -> dict[str, Any] | None:
        """The object in a file of the folder; None, and a problem, when it is not one."""
        try:
            found = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            self.refuse(f"{name} cannot be read: {error}", "copy the policy again")
            return None
        if not isinstance(found, dict):
            self.refuse(f"{name} is not a JSON object", "copy the policy again")
            return None
        return found


def inspect_policy_folder(path: Path, setting: str, weights: bool = True) -> PolicyFolder:
    """Everything that would keep ``path`` from loading; ``weights`` False leaves those out, for a policy that is only partly downloaded."""
    folder = PolicyFolder(path, setting)
    if not path.exists():
        folder.refuse("does not exist", "check the path")
    elif not path.is_dir():
        folder.refuse("is a file", "give the folder that holds config.json and *.safetensors")
    else:
        check_config(folder)
        check_tokenizer(folder)
        for name in CONFIGURATIONS[2:]:
            if (path / name).is_file():
                refuse_code(folder, folder.json(name) or {}, name)
        if weights:
            check_weights(folder)
    return folder


def check_config(folder: PolicyFolder) -> None:
    if not (folder.path / "config.json").is_file():
        if not (folder.path / "adapter_config.json").is_file():
            folder.refuse("has no config.json", "give the folder that save_pretrained wrote")
        return  # adapters of a LoRA checkpoint: the configuration is in the policy they belong to
    config = folder.json("config.json")
    if config is None:
        return
    refuse_code(folder, config, "config.json")
    folder.context = read_context(config)
    kinds = config.get("architectures")
    if (
        isinstance(kinds, list)
        and kinds
        and not any(str(kind).endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MaskedLlama")) for kind in kinds)
    ):
        if any(str(kind).endswith("ForSequenceClassification") for kind in kinds):
            folder.refuse("holds a reward model, which writes no text", "choose the policy of a run that trained one")
            return
        message = f"holds a {', '.join(map(str, kinds))}, which may not generate text"
        folder.warnings.append(Problem(folder.setting, str(folder.path), message, "use a causal language model"))


def find_text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration; models that also see keep it apart."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def read_context(config: Mapping[str, Any]) -> int | None:
    sizes = [find_text_config(config).get(key) for key in CONTEXT_KEYS]
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def refuse_code(folder: PolicyFolder, config: dict[str, Any], name: str) -> None:
    for words in code_of(config, name):
        folder.refuse(words, "use a policy whose architecture transformers has built in, with its own attention")


def code_of(value: Any, name: str, depth: int = 0) -> list[str]:
    """What in a configuration makes a loader run code that comes with a policy or that it fetches: classes, kernels of other repositories.

    The lab loads with trust_remote_code off; a policy that asks for it is refused all the same, here and for whoever loads it elsewhere.
    """
    if depth > DEEPEST:
        return [f"{name} is nested too deeply"]
    if isinstance(value, list):
        return [words for item in value for words in code_of(item, name, depth + 1)]
    if not isinstance(value, dict):
        return []
    found = []
    for key, item in value.items():
        if key in CODE_KEYS and item not in (None, False):  # an empty one too: save_pretrained writes none
            found.append(f"{name} has an {key}: loading it would run code that comes with the policy")
        elif key == "trust_remote_code" and item:
            found.append(f"{name} asks for trust_remote_code")
        elif str(key).endswith("_implementation") and any("/" in text or ":" in text for text in texts_in(item)):
            found.append(f"{name} names a kernel of another repository ({key}), which is code")
        else:
            found += code_of(item, name, depth + 1)
    return found


def texts_in(value: Any) -> list[str]:
    """The strings in a string, or in an object's values."""
    return [value] if isinstance(value, str) else [item for item in value.values() if isinstance(item, str)] if isinstance(value, dict) else []


def code_in(path: Path) -> list[str]:
    """``code_of`` all configurations in a folder, adapters and generation included."""
    found = []
    for name in CONFIGURATIONS:
        if (path / name).is_file():
            try:
                found += code_of(json.loads((path / name).read_bytes()), name)
            except (OSError, ValueError, RecursionError):
                found.append(f"{name} cannot be read")
    return found


def check_tokenizer(folder: PolicyFolder) -> None:
    if not any((folder.path / name).is_file() for name in TOKENIZERS):
        folder.refuse("has no tokenizer", "save it there with tokenizer.save_pretrained(…)")
        return
    config: dict[str, Any] | None = {}
    if (folder.path / "tokenizer_config.json").is_file():
        config = folder.json("tokenizer_config.json")
        if config is None:
            return
        refuse_code(folder, config, "tokenizer_config.json")
    if not ((folder.path / "chat_template.jinja").is_file() or (config or {}).get("chat_template")):
        fix = "use an instruction-tuned policy, or put a chat_template.jinja into the folder"
        folder.refuse("has no chat template, so prompts cannot be written as messages", fix)


def check_weights(folder: PolicyFolder) -> None:
    files = sorted(folder.path.glob("*.safetensors"))
    if not files:
        pickled = [path.name for pattern in PICKLED for path in folder.path.glob(pattern)]
        if pickled:
            folder.refuse(f"holds pickled weights ({pickled[0]}), which can run code when loaded, and no *.safetensors", REBUILD)
        else:
            folder.refuse("has no *.safetensors", "give the folder that save_pretrained wrote")
        return
    for path in files:
        reason = find_safetensors_damage(path)
        if reason:
            folder.refuse(f"{path.name} {reason}", "copy or download it again")
    if (folder.path / "model.safetensors.index.json").is_file():
        index = folder.json("model.safetensors.index.json") or {}
        shards = index.get("weight_map")
        wanted = set(map(str, shards.values())) if isinstance(shards, dict) else set()
        lost = sorted(wanted - {path.name for path in files})
        if lost:
            folder.refuse(f"{len(lost)} of {len(wanted)} weight files are missing, the first is {lost[0]}", "copy or download them")


def find_safetensors_damage(path: Path) -> str:
    """Why a file cannot be safetensors: its header (eight bytes of length, then JSON) must say exactly how long the file is. Empty when it is."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(size - 8, LARGEST_HEADER):
                return "is not a safetensors file" if size else "is empty"
            header = json.loads(file.read(length))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except (ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError):
        return "is not a safetensors file"
    whole = 8 + length + max(ends, default=0)
    return "" if whole == size else f"is {size} bytes long where its header says {whole}"
