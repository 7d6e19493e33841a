"""A policy that calls tools, with random weights and Qwen3's chat template, whose words a test writes."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl.chat_template_utils import qwen3_instruct_2507_chat_template

CONTEXT = 1024
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"]
CORPUS = [
    qwen3_instruct_2507_chat_template,
    '{"type": "function", "function": {"name": "multiply", "description": "Multiplies two numbers.", "parameters": {"type": "object", "properties": '
    '{"a": {"type": "integer", "description": "The first number."}}, "required": ["a", "b"]}, "return": {"type": "integer"}}} user assistant system',
]
Write = Callable[[str, int], str]  # what stands before a turn, and its place in the batch -> the turn


def build_tool_tokenizer(template: str = qwen3_instruct_2507_chat_template) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    core.train_from_iterator(CORPUS, trainer)
    core.decoder = decoders.ByteLevel()
    core.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in MARKS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[2],
        additional_special_tokens=[SPECIAL[1]],
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer


def build_tool_policy(folder: Path, template: str = qwen3_instruct_2507_chat_template) -> Path:
    tokenizer = build_tool_tokenizer(template)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    return folder


def script_turns(monkeypatch: pytest.MonkeyPatch, tokenizer: Any, write: Write) -> None:
    """From now on ``generate`` writes what ``write`` says, an end token after it unless it ends in …; not longer than it may be."""

    def generate(self: Any, input_ids: Any, attention_mask: Any, generation_config: Any, **rest: Any) -> Any:
        made = []
        for place, (ids, there) in enumerate(zip(input_ids, attention_mask, strict=True)):
            text = write(tokenizer.decode(ids[there.bool()]), place)
            end = [] if text.endswith("…") else [tokenizer.eos_token_id]
            made.append((tokenizer.encode(text.removesuffix("…"), add_special_tokens=False) + end)[: generation_config.max_new_tokens])
        width = max(map(len, made))
        padded = [row + [tokenizer.pad_token_id] * (width - len(row)) for row in made]
        return torch.cat([input_ids, torch.tensor(padded, device=input_ids.device)], 1)

    monkeypatch.setattr(Qwen3ForCausalLM, "generate", generate)


def write_tool_call(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def find_tool_results(text: str) -> list[str]:
    """What tools have answered so far in a rendered conversation."""
    return re.findall(r"<tool_response>\n(.*?)\n</tool_response>", text, re.DOTALL)
