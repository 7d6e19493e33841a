"""The built-in policy: half a million parameters and a tokenizer for a family of tasks, built where it is first needed and cached.

Built-in tasks are one family, each world of ``trainers/worlds`` is one of its own, so that a further world changes no policy of another.
``LAB_CACHE`` names the cache (``~/.cache/policy-lab``). A cached policy is named after a hash of everything it is made from, is written under
another name first, and is built by one process at a time.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trainers.tasks.base import CORE, Task
from trainers.tasks.registry import BUILT_IN
from trainers.worlds.base import World


def write_tags(names: Sequence[str]) -> list[str]:
    return [f"<{slash}{name}>" for name in names for slash in ("", "/")]


CONTEXT = 256  # tokens
VOCABULARY = 1024  # at most; the tasks' words need fewer
CORPUS = 1500  # examples of each built-in task and difficulty that the tokenizer is made from
WORLD_CORPUS = 500  # of a world
SHAPE = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 384,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": True,
    "initializer_range": 0.04,
}
PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
TAGS = write_tags(Task.tags)
TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['role'] == 'assistant' %}{% generation %}{{- message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{%- else %}{{- message['content'] + '<|im_end|>' }}{%- endif %}{{- '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
RECIPE = 1  # raise it when the way of building changes in a way that the hash cannot see


def get_cache_root() -> Path:
    return Path(os.environ.get("LAB_CACHE") or Path.home() / ".cache" / "policy-lab").expanduser()


@dataclass(frozen=True)
class Family:
    """Tasks that share a vocabulary. ``texts``: what they ask and how it is answered, all difficulties, the same everywhere."""

    name: str
    tags: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def policy_name(self) -> str:
        """Another one whenever anything that the policy is made from is another."""
        return f"tiny-{hash_json_value([RECIPE, SHAPE, VOCABULARY, list(self.tags), TEMPLATE, self.texts])}"


@cache
def build_core_family() -> Family:
    return Family(CORE, tuple(TAGS), build_tokenizer_corpus())


def build_world_family(chosen: World) -> Family:
    """Of the world without options, but for those with words of their own: with any others it has the same words and the same policy."""
    world = type(chosen)(chosen.list_wordy_options())
    return Family(world.family, tuple(write_tags(world.tags)), tuple(write_corpus([world], WORLD_CORPUS)))


WORLD_FAMILIES: dict[str, Family] = {}  # by name, of this process


def find_family(task: Task | None) -> Family:
    """None: of no task in particular."""
    if not isinstance(task, World):
        return build_core_family()
    if task.family not in WORLD_FAMILIES:  # some seconds
        WORLD_FAMILIES[task.family] = build_world_family(task)
    return WORLD_FAMILIES[task.family]


@cache
def build_tokenizer_corpus() -> tuple[str, ...]:
    """Of the built-in tasks."""
    return tuple(write_corpus([kind() for kind in BUILT_IN], CORPUS))


def write_corpus(tasks: Sequence[Task], count: int) -> Iterator[str]:
    for task in tasks:
        for difficulty in task.difficulties:
            for example in task.examples("train", count, 0, difficulty):
                yield "\n".join([*(message.content for message in example.prompt), task.gold(example)])
    yield from (f"{role}\n" for role in ("system", "user", "assistant", "tool"))


def build_tokenizer(texts: Sequence[str], tags: Sequence[str] = TAGS) -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits. Tags are ordinary tokens: as special ones, TRL would strip them before the rewards see them."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Tags are cut out of the training text, so that no merge spans their brackets.
    cuts = [pre_tokenizers.Split(tag, "removed") for tag in tags]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.Digits(individual_digits=True), byte_level])
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(tags),
        min_frequency=20,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    fast.chat_template = TEMPLATE
    return fast


def build_model(tokenizer: Any) -> LlamaForCausalLM:
    """Random weights, the same for everyone."""
    config = LlamaConfig(
        **SHAPE, vocab_size=len(tokenizer), bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).to(torch.float32)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model


def build_tiny_policy(folder: Path, family: Family) -> None:
    tokenizer = build_tokenizer(family.texts, family.tags)
    build_model(tokenizer).save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)


def ensure_untrained_policy(task: Task | None = None) -> Path:
    """Folder of the policy with random weights that a run on ``task`` begins with."""
    family = find_family(task)
    return ensure_cached_folder(family.policy_name, lambda folder: build_tiny_policy(folder, family))


def name_untrained_policy() -> str:
    """Of the built-in tasks."""
    return build_core_family().policy_name


def cached_cold_start(task: Task, difficulty: str, train: Callable[[Path, Path], None], made_from: Any) -> Path:
    """Folder of the policy after a cold start on ``task``. ``train`` writes it, given the untrained policy and where; ``made_from``: how."""
    start = ensure_untrained_policy(task)
    name = f"cold-{task.cache_key}-{difficulty}-{hash_json_value([start.name, task.cache_key, difficulty, made_from])}"
    return ensure_cached_folder(name, lambda folder: train(start, folder))


def hash_json_value(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def ensure_cached_folder(name: str, write: Callable[[Path], None]) -> Path:
    """The cached folder ``name``; when it is not there, ``write`` fills it. A second process waits for the first."""
    folder = get_cache_root() / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_exclusive_lock(folder.with_name(f".{name}.lock")):
        if not folder.is_dir():
            partial = folder.with_name(f".{name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            write(partial)
            partial.rename(folder)
    return folder


@contextmanager
def hold_exclusive_lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
