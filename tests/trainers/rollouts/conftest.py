"""A policy whose episodes have several turns without any training: what may follow a token is written down, what does is drawn."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from trainers.contract.spec import parse_spec
from trainers.methods.context import RunContext
from trainers.methods.session import Session
from trainers.policies import tiny
from trainers.policies.loading import Policy
from trainers.worlds.search import Search

LIKELY = 12.0  # nats above the rest
GROUP = 4


class ScriptedPolicy(LlamaForCausalLM):
    """The tiny policy with random weights, to whose logits a table is added: token -> what may follow it."""

    def forward(self, input_ids: Any = None, **rest: Any) -> Any:
        out = super().forward(input_ids=input_ids, **rest)
        out.logits = out.logits + self.table[input_ids[:, -out.logits.shape[1] :]]
        return out


def write_table(tokenizer: Any, size: int) -> torch.Tensor:
    """Calls and answers of one word each, in any number."""

    def number(text: str) -> int:
        (id_,) = tokenizer.encode(text, add_special_tokens=False)
        return int(id_)

    table = torch.zeros(size, size)
    words = [number(word) for word in ("Eva", "Leo", "Max", "Paris", " boss", " city")]
    starts = [number("<search>"), number("<answer>")]
    for before in (tokenizer.encode("assistant\n", add_special_tokens=False)[-1], number("</information>")):
        table[before, starts] += LIKELY
    table[starts[0], words] += LIKELY
    table[starts[1], words] += LIKELY
    for word in words:
        table[word, [number("</search>"), number("</answer>")]] += LIKELY
    table[number("</answer>"), tokenizer.eos_token_id] += LIKELY
    return table


@pytest.fixture(scope="session")
def scripted(policy_cache: Path) -> Any:
    folder = tiny.ensure_untrained_policy(Search())
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = ScriptedPolicy.from_pretrained(folder).eval()
    model.register_buffer("table", write_table(tokenizer, model.config.vocab_size), persistent=False)
    return model, tokenizer


@pytest.fixture
def make_session(scripted: Any, tmp_path: Path) -> Callable[..., Session]:
    """A session of two prompts of the world ``search``, four members each."""
    model, tokenizer = scripted

    def make(task: Any = None, max_tokens: int = 96, **more: Any) -> Session:
        from trainers.attempt.context import Attempt

        task = task or Search()
        spec = parse_spec({"task": {"name": "search"}, "training": {"trainer": "grpo"}, "output": str(tmp_path)})
        policy = Policy(model, tokenizer, tmp_path, torch.device("cpu"), False)
        unheard: Any = SimpleNamespace()
        attempt = Attempt(spec, tmp_path, task, policy, unheard, unheard)
        examples = [example for example in task.examples("train", 2, 0, next(iter(task.difficulties))) for _ in range(GROUP)]
        run = RunContext(attempt)
        prompts = [list(example.prompt) for example in examples]
        return Session(run, model, examples, prompts, GROUP, 3, 10, 1.0, max_tokens, random.Random(0), **more)

    return make
