"""How a task looks to a model, before any run: its rows as the chat template writes them, token by token, and what its reward functions say of
answers whose worth people know. Run in a child that the lab forks for every preview; nothing is loaded of the model but its tokenizer.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from transformers import AutoTokenizer

from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import TINY_CONTEXT, HubPolicy, Policy, RunPolicy, TinyPolicy
from trainers.contract.task_files import TaskDefinition, TaskRow
from trainers.judges.rewards import weighted_sum
from trainers.policies.checks import find_cached_folder
from trainers.policies.tiny import ensure_untrained_policy, name_untrained_policy
from trainers.tasks.base import Example, Reward
from trainers.tasks.file_task import build_columns, build_preamble, make_example

MOST_TOKENS = 4000  # of a prompt that are written out
ANSWER = 20_000  # characters of an answer that are scored

name_untrained_policy()  # takes a second, once: what the server has worked out, every child it forks has


def answer_task_preview(data: bytes) -> Iterator[str]:
    """One line of JSON: the rendered rows with the scores of their answers, or ``problems``.

    ``data``: definition, rows (of the task), rendered (how many of them), answers (pasted ones), policy (of a spec).
    """
    asked = json.loads(data)
    try:
        found: dict[str, Any] = preview_task(asked)
    except SpecError as error:
        found = {"problems": error.as_json()}
    yield json.dumps(found, allow_nan=False)


def preview_task(asked: dict[str, Any]) -> dict[str, Any]:
    """Raises SpecError for a model that cannot be read here."""
    definition = TaskDefinition.model_validate(asked["definition"])
    rows = [TaskRow.model_validate(row) for row in asked["rows"]]
    rewards = build_columns(definition)
    before = build_preamble(definition)
    examples = [make_example(before, row) for row in rows]
    tokenizer, context = load_tokenizer(TypeAdapter(Policy).validate_python(asked["policy"]))
    lengths = [len(ids) for ids in tokenize_prompts(tokenizer, examples)]
    shown = []
    for number, (example, row) in enumerate(zip(examples[: asked["rendered"]], rows, strict=False)):
        ids = tokenize_prompts(tokenizer, [example])[0]
        answers = list_answers(example, row, asked["answers"])
        scored = [score_answer(rewards, example, kind, text, tokenizer) for kind, text in answers]
        shown.append({"row": number, "length": lengths[number], "split": row.split, "tokens": write_tokens(tokenizer, ids), "answers": scored})
    return {
        "problems": [],
        "context": context,
        "lengths": lengths,
        "references": [count_tokens(tokenizer, row.demonstration or row.reference) for row in rows],
        "columns": [{"name": name, "weight": reward.weight, "summary": reward.summary} for name, reward in rewards.items()],
        "rows": shown,
    }


def load_tokenizer(policy: Any) -> tuple[Any, int | None]:
    """The tokenizer, and how many tokens the model reads where that is known. Never asks the network. Raises SpecError."""
    if isinstance(policy, TinyPolicy):
        return AutoTokenizer.from_pretrained(ensure_untrained_policy(), trust_remote_code=False), TINY_CONTEXT
    if isinstance(policy, HubPolicy):
        folder = find_cached_folder(policy)
        if folder is None:
            message = "is not in this machine's cache of the hub"
            raise SpecError([Problem("policy.name", policy.name, message, "train on it once, download it there, or preview with another model")])
    else:
        folder = policy.path() if isinstance(policy, RunPolicy) else Path(policy.path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise SpecError([Problem("policy", str(folder), f"has no tokenizer that can be read: {str(error)[:200]}", "choose another model")]) from None
    if not tokenizer.chat_template:
        raise SpecError([Problem("policy", str(folder), "has no chat template, so prompts cannot be written as messages", "choose another model")])
    context = config.get("max_position_embeddings") or (config.get("text_config") or {}).get("max_position_embeddings")
    return tokenizer, context if isinstance(context, int) else None


def tokenize_prompts(tokenizer: Any, examples: list[Example]) -> list[list[int]]:
    """Ids of each prompt as a trainer asks for them. Raises SpecError where the template refuses the conversation."""
    found = []
    for example in examples:
        messages = [{"role": message.role, "content": message.content} for message in example.prompt]
        try:
            found.append(list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)))
        except Exception as error:  # a template is a program that anybody wrote
            message = f"the model's chat template refuses the conversation: {type(error).__name__}: {str(error)[:200]}"
            raise SpecError(
                [Problem("policy", None, message, "change the system prompt or the examples, or choose another model", given=False)]
            ) from None
    return found


def write_tokens(tokenizer: Any, ids: list[int]) -> list[list[Any]]:
    """[text, whether it is a special token] of the first tokens. A character of several tokens stands at its last one."""
    special, written, waiting = set(tokenizer.all_special_ids), list[list[Any]](), list[int]()
    for token in ids[:MOST_TOKENS]:
        waiting.append(token)
        text = tokenizer.decode(waiting, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if "\ufffd" in text and len(waiting) < 4 and token not in special:
            written.append(["", False])
            continue
        written.append([text, token in special])
        waiting = []
    return written


def list_answers(example: Example, row: TaskRow, pasted: list[str]) -> list[tuple[str, str]]:
    """(kind, text): the demonstration and the reference where there are any, no answer, and what somebody pasted."""
    own = [("demonstration", row.demonstration)] if row.demonstration else []
    own += [("reference", example.reference)] if example.reference else []
    return [*[(kind, text or "") for kind, text in own], ("empty", ""), *(("pasted", text) for text in pasted)]


def score_answer(rewards: dict[str, Reward], example: Example, kind: str, text: str, tokenizer: Any) -> dict[str, Any]:
    scores: dict[str, float | None] = {}
    errors: dict[str, str] = {}
    for name, reward in rewards.items():
        try:
            scores[name] = reward.function(text[:ANSWER], example)
        except Exception as error:  # a reward function on a text that anybody wrote
            scores[name], errors[name] = None, f"{type(error).__name__}: {str(error)[:200]}"
    total = weighted_sum(scores, {name: reward.weight for name, reward in rewards.items()})
    tokens = count_tokens(tokenizer, text)
    return {"kind": kind, "text": text[:ANSWER], "tokens": tokens, "scores": scores, "errors": errors, "reward": total}


def count_tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else 0
