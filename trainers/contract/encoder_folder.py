"""What a folder must hold to be loaded as a sentence encoder, read without torch: a built-in encoder, safetensors, a tokenizer, mean pooling."""

import json
from pathlib import Path
from typing import Any

from trainers.contract.policy_folder import TOKENIZERS, PolicyFolder, check_weights, refuse_code

CONFIG, MODULES, POOLING = "config.json", "modules.json", Path("1_Pooling", "config.json")
KINDS = ("Model", "ForMaskedLM")  # ends of the architectures that encode a text and write none
APPLIED = ("Transformer", "Pooling", "Normalize")  # modules of sentence-transformers whose work ``trainers.policies.embedding`` does too
LARGEST = 1 << 20  # bytes of a configuration


def is_encoder_folder(path: Path) -> bool:
    """Whether its configuration names an encoder; one that cannot be read names none."""
    kinds = (read_json(path / CONFIG) or {}).get("architectures")
    return isinstance(kinds, list) and bool(kinds) and all(str(kind).endswith(KINDS) for kind in kinds)


def inspect_encoder_folder(path: Path, setting: str) -> PolicyFolder:
    """Everything that would keep ``path`` from loading, or its vectors from being what the encoder was trained to give."""
    folder = PolicyFolder(path, setting)
    if not is_encoder_folder(path):
        folder.refuse("is not a sentence encoder", "give a folder with an encoder that transformers has built in, such as a BertModel")
        return folder
    refuse_code(folder, folder.json(CONFIG) or {}, CONFIG)
    if not any((path / name).is_file() for name in TOKENIZERS):
        folder.refuse("has no tokenizer", "save it there with tokenizer.save_pretrained(…)")
    elif (path / "tokenizer_config.json").is_file():
        refuse_code(folder, folder.json("tokenizer_config.json") or {}, "tokenizer_config.json")
    check_pooling(folder)
    check_weights(folder)
    return folder


def check_pooling(folder: PolicyFolder) -> None:
    """Of a folder of sentence-transformers: mean pooling, and no further layer. A folder without its files is pooled by mean."""
    modules: Any = read_json(folder.path / MODULES)
    names = [str(one.get("type", "")).rsplit(".", 1)[-1] for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    further = [name for name in names if name not in APPLIED]
    if further:
        folder.refuse(f"has a layer that the lab does not apply ({further[0]})", "use an encoder without it")
    pooling = read_json(folder.path / POOLING)
    if isinstance(pooling, dict) and not (pooling.get("pooling_mode_mean_tokens", False) or pooling.get("pooling_mode") == "mean"):
        folder.refuse("does not pool by the mean of its tokens, which is what the lab does", "use an encoder with mean pooling")


def read_json(path: Path) -> Any:
    """What a small file holds; None when it is not there or cannot be read."""
    try:
        return json.loads(path.read_bytes()) if path.stat().st_size <= LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
