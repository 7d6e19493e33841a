"""Models of other families: small random weights and a tokenizer made on the spot, trained, exported, and read back by plain transformers.

What differs between families is kept: heads wider than the network divided by their number, key-value heads, tied weights, windows, chats that have
no system role, an end of turn that is not the tokenizer's end of text, a tokenizer without padding.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast
from transformers.models.gemma3 import Gemma3ForCausalLM, Gemma3TextConfig
from transformers.models.llama import LlamaConfig, LlamaForCausalLM
from transformers.models.mistral import MistralConfig, MistralForCausalLM
from transformers.models.qwen3 import Qwen3Config, Qwen3ForCausalLM

from tests.trainers.conftest import events_in, make_spec
from trainers.adapters.grpo import GRPOAdapter
from trainers.attempt import train
from trainers.checks.model_lookup import look_up_model
from trainers.checks.model_memory import count_adapter_parameters
from trainers.contract.events import Metrics, Rollout
from trainers.contract.spec import FolderPolicy, Lora
from trainers.policies import loading as policies
from trainers.tasks import registry

pytestmark = pytest.mark.training

SIZES = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96}
CONTEXT = 256
CHATML = (
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
LLAMA = (
    "{{- bos_token }}{%- for message in messages %}"
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"
)
GEMMA = (
    "{{- bos_token }}{%- set first = '' %}{%- if messages[0]['role'] == 'system' %}{%- set first = messages[0]['content'] + '\\n\\n' %}"
    "{%- set messages = messages[1:] %}{%- endif %}{%- for message in messages %}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('roles have to take turns') }}{%- endif %}"
    "{{- '<start_of_turn>' + ('model' if message['role'] == 'assistant' else 'user') + '\\n' + (first if loop.first else '') }}"
    "{{- message['content'] | trim + '<end_of_turn>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"
)
MISTRAL = (
    "{{- bos_token }}{%- for message in messages %}{%- if message['role'] == 'assistant' %}{{- ' ' + message['content'] + eos_token }}"
    "{%- else %}{{- '[INST] ' + message['content'] + ' [/INST]' }}{%- endif %}{%- endfor %}"
)


@dataclass(frozen=True)
class Family:
    """``ends``: tokens that end an answer, where the model's generation settings name more than the tokenizer's end of text."""

    config: type
    model: type
    template: str
    specials: dict[str, str]  # roles of a tokenizer: eos_token, bos_token, pad_token
    marks: tuple[str, ...] = ()  # further tokens of the chat template
    more: dict[str, Any] = field(default_factory=dict)
    ends: tuple[str, ...] = ()


FAMILIES = {
    "qwen3": Family(
        Qwen3Config,
        Qwen3ForCausalLM,
        CHATML,
        {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        ("<|im_start|>",),
        {"head_dim": 32, "tie_word_embeddings": True},
        ("<|im_end|>", "<|endoftext|>"),
    ),
    "llama": Family(
        LlamaConfig,
        LlamaForCausalLM,
        LLAMA,
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        ("<|start_header_id|>", "<|end_header_id|>"),
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "gemma3": Family(
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        GEMMA,
        {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
        ("<start_of_turn>", "<end_of_turn>"),
        {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16, "layer_types": ["sliding_attention", "full_attention"]},
        ("<eos>", "<end_of_turn>"),
    ),
    "mistral": Family(
        MistralConfig,
        MistralForCausalLM,
        MISTRAL,
        {"bos_token": "<s>", "eos_token": "</s>"},
        ("[INST]", "[/INST]"),
        {"sliding_window": 32, "tie_word_embeddings": False},
    ),
    "smollm": Family(
        LlamaConfig,
        LlamaForCausalLM,
        CHATML,
        {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"},
        (),
        {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
}


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    task = registry.get_task("mini_gsm")
    examples = task.examples("train", 100, 0, "easy")
    return ["\n".join([*(message.content for message in example.prompt), task.gold(example)]) for example in examples]


def build_family_tokenizer(family: Family, corpus: list[str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = list(dict.fromkeys([*family.specials.values(), *family.marks]))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    )
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=list(family.marks), **family.specials)
    made.chat_template = family.template
    return made


def write_family(name: str, folder: Path, corpus: list[str]) -> Path:
    """A folder as save_pretrained leaves it, in bf16 as models of a hub are."""
    family = FAMILIES[name]
    tokenizer = build_family_tokenizer(family, corpus)
    ends = [tokenizer.convert_tokens_to_ids(token) for token in family.ends] or tokenizer.eos_token_id
    known = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": ends, "pad_token_id": tokenizer.pad_token_id}
    # A few rows more than the tokenizer has tokens, as embeddings are padded for the sake of speed.
    config = family.config(**{**SIZES, "vocab_size": len(tokenizer) + 7, "max_position_embeddings": CONTEXT, **known, **family.more})
    torch.manual_seed(0)
    model = family.model(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(**known, do_sample=True, top_k=20, top_p=0.95)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Logits of the trained policy, taken right before it is exported."""
    taken: list[torch.Tensor] = []
    export = policies.export_policy

    def take_and_export(model: Any, tokenizer: Any, folder: Path, base: Path | None = None, weights: Any = None) -> None:
        model.eval()
        with torch.no_grad():
            taken.append(model(input_ids=IDS).logits)
        export(model, tokenizer, folder, base, weights)

    monkeypatch.setattr(policies, "export_policy", take_and_export)
    return taken


@pytest.fixture
def half_written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """GRPO samples from the policy, and every second answer is then replaced by a right one: random weights would never earn a reward. The lengths
    of the sampled ones."""
    sample, lengths = GRPOAdapter._generate_single_turn, []

    def write(trainer: Any, prompt_ids: Any, *rest: Any) -> Any:
        made, logprobs = sample(trainer, prompt_ids, *rest)
        lengths.extend(len(ids) for ids in made)
        for place, row in enumerate(trainer.rows):
            if place % 2:
                gold = trainer.task.gold(trainer.examples[row["example"]])
                made[place] = [*trainer.processing_class.encode(gold, add_special_tokens=False), trainer.processing_class.eos_token_id]
        return made, logprobs

    monkeypatch.setattr(GRPOAdapter, "_generate_single_turn", write)
    return lengths


IDS = torch.arange(10, 60)[None]  # longer than the window of those that have one
TRAINED = [(name, trainer, None) for name in FAMILIES for trainer in ("grpo", "sft")]
TRAINED += [("gemma3", "dpo", None), ("qwen3", "grpo", {"r": 4, "alpha": 8}), ("mistral", "dpo", {"r": 4, "alpha": 8})]


@pytest.mark.parametrize(("name", "trainer", "lora"), TRAINED, ids=lambda value: value if isinstance(value, str) else "lora" if value else "whole")
def test_a_family_is_trained_exported_and_read_back_by_plain_transformers(
    name: str, trainer: str, lora: dict[str, int] | None, corpus: list[str], tmp_path: Path, exported: list[torch.Tensor], half_written: list[int]
) -> None:
    start, run = write_family(name, tmp_path / "model", corpus), tmp_path / "run"
    training: dict[str, Any] = {"training__max_steps": 2, "training__learning_rate": 1e-3, "training__warmup_steps": 0}
    if trainer == "dpo":
        training["dataset"] = {"path": str(write_pairs(tmp_path / "pairs.jsonl"))}
    if trainer == "grpo":
        training["training__gradient_checkpointing"] = lora is not None
    spec = make_spec(
        run, trainer, policy={"kind": "folder", "path": str(start)}, lora=lora, evaluation={"prompts": 2, "temperature": 1.0, "every": 0}, **training
    )
    assert train.run_training(spec, run) == train.FINISHED
    events = events_in(run)
    losses = [event.values["loss"] for event in events if isinstance(event, Metrics) and "loss" in event.values]
    assert len(losses) == 2
    assert all(loss == loss for loss in losses)
    assert len([event for event in events if isinstance(event, Rollout) and event.phase == "heldout"]) == 4
    assert bool(half_written) == (trainer == "grpo")
    check_export(name, start, run / "final", exported[-1])


def write_pairs(file: Path) -> Path:
    rows = [{"prompt": f"{i}+1?", "chosen": f"<answer>{i + 1}</answer>", "rejected": "I cannot say."} for i in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def check_export(name: str, start: Path, final: Path, logits: torch.Tensor) -> None:
    """Whole weights, without adapters, that say the same; settings and tokenizer as they came; and other weights than those trained from."""
    model, began = (AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) for folder in (final, start))
    assert type(model) is FAMILIES[name].model
    assert not list(final.glob("adapter*"))
    with torch.no_grad():
        torch.testing.assert_close(model(input_ids=IDS).logits, logits, atol=2e-5, rtol=1e-4)
        assert not torch.allclose(began(input_ids=IDS).logits, logits, atol=1e-4)
    kept = ("eos_token_id", "bos_token_id", "tie_word_embeddings", "vocab_size", "sliding_window", "head_dim", "max_position_embeddings")
    assert {key: getattr(model.config, key, None) for key in kept} == {key: getattr(began.config, key, None) for key in kept}
    # TRL gives a tokenizer without padding its end token for it, and the model the same.
    assert how_to_sample(model) == how_to_sample(began)
    chat = [{"role": "user", "content": "2+3?"}, {"role": "assistant", "content": "5"}]
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (final, start))
    assert ours.chat_template == theirs.chat_template
    assert ours.apply_chat_template(chat)["input_ids"] == theirs.apply_chat_template(chat)["input_ids"]


def how_to_sample(model: Any) -> dict[str, Any]:
    return {key: value for key, value in model.generation_config.to_dict().items() if key not in ("pad_token_id", "transformers_version")}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_said_of_a_family_before_it_loads_is_what_it_is(name: str, corpus: list[str], tmp_path: Path) -> None:
    folder = write_family(name, tmp_path / "model", corpus)
    model = AutoModelForCausalLM.from_pretrained(folder)
    facts = look_up_model(FolderPolicy(path=str(folder))).facts
    assert facts is not None
    assert facts.shape is not None
    assert (facts.architecture, facts.context, facts.dtype, facts.chat_template) == (FAMILIES[name].model.__name__, CONTEXT, "bfloat16", True)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert facts.parameters == counted
    (folder / "model.safetensors").unlink()
    without_weights = look_up_model(FolderPolicy(path=str(folder))).facts
    assert without_weights is not None
    assert (without_weights.parameters, without_weights.counted) == (counted, "configuration")
    adapted = get_peft_model(model, policies.build_lora_config(Lora(r=4, alpha=8)))
    assert count_adapter_parameters(facts.shape, 4) == sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
