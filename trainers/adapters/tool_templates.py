"""Whether a policy's chat template can call tools: what TRL's GRPOTrainer asks of it, asked before the trainer is built."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from transformers import AutoTokenizer
from transformers.utils import get_json_schema
from trl.chat_template_utils import (
    add_response_schema,
    get_training_chat_template,
    is_chat_template_prefix_preserving,
    supports_tool_calling,
)

from trainers.attempt.context import Attempt
from trainers.checks.trl_needs import name_policy
from trainers.contract.problems import Problem, SpecError
from trainers.policies.loading import one_line

PARSERS = ("response_template", "response_schema")  # of a tokenizer: how the calls in an answer are told from its words


def prepare_tool_calls(attempt: Attempt) -> None:
    """Gives the tokenizer back what it parses answers with, which loading drops. Raises SpecError for a chat template that cannot call tools."""
    tokenizer = attempt.policy.tokenizer
    told = AutoTokenizer.from_pretrained(attempt.policy.folder, trust_remote_code=False, local_files_only=True)
    for name in PARSERS:
        setattr(tokenizer, name, getattr(told, name, None))
    if reason := find_template_fault(tokenizer):
        field, value = name_policy(attempt.spec.policy)
        raise SpecError([Problem(field, value, reason, "use a model that calls tools and that TRL knows, such as an instruction-tuned Qwen3")])


def find_template_fault(tokenizer: Any) -> str:
    """Why the tokenizer cannot be trained to call tools; empty where it can."""
    if not supports_tool_calling(tokenizer):
        return "its chat template does not render calls of tools and their results"
    if not any(getattr(tokenizer, name, None) for name in PARSERS):
        try:
            add_response_schema(copy.copy(tokenizer))
        except ValueError:
            return "its chat template is not one whose calls TRL can read, and the tokenizer has no response_template of its own"
    if not is_chat_template_prefix_preserving(tokenizer):
        try:
            get_training_chat_template(tokenizer)
        except ValueError:
            return "its chat template renders a message otherwise once another follows, and TRL has no other template for it"
    return ""


def check_tool_descriptions(task_name: str, tools: Iterable[Callable[..., Any]]) -> None:
    """Raises SpecError for a tool that cannot be described to the policy: the chat template would fail on it."""
    for tool in tools:
        try:
            get_json_schema(tool)
        except Exception as error:  # what transformers raises here has no common class
            fix = "give it types and a docstring that describes every argument under Args:"
            raise SpecError([Problem("task.name", task_name, f"the tool {tool.__name__} cannot be described: {one_line(error)}", fix)]) from error
