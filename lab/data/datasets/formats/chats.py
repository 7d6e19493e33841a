"""Rows with one answer to imitate: OpenAI and ShareGPT conversations, Alpaca, Orca, TRL's prompt and completion."""

from __future__ import annotations

from lab.data.datasets.formats.base import ColumnMapping, ConvertedRow, Format, FormatPart, Row, Values
from lab.data.datasets.formats.messages import parse_json_messages, parse_messages
from lab.data.datasets.formats.pairs import SYSTEM, TOOLS, make_prompt_part
from lab.data.datasets.formats.rows import build_completion_row, parse_number
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError

LAST = "The last answer of the assistant becomes the completion, everything before it the prompt."
CONTEXT = FormatPart("context", "text after the instruction", ("input",), needed=False)
HISTORY = FormatPart("history", "what was said before", ("history",), needed=False)


def make_completion_part(*names: str) -> FormatPart:
    return FormatPart("completion", "the completion", names)


def make_conversation_part(*names: str) -> FormatPart:
    return FormatPart("completion", "the prompt, and the completion: the last answer", names)


def from_chat(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    conversation = parse_messages(values["completion"], "conversation", "assistant")
    last = parse_json_messages(values["completion"])
    if isinstance(last, list) and isinstance(last[-1], dict) and last[-1].get("weight") is not None and parse_number(last[-1]["weight"]) == 0:
        raise RowError("the last answer has the weight 0, so it is not meant to be learned")
    return ConvertedRow(build_completion_row(values, conversation))


def from_completion(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    return ConvertedRow(build_completion_row(values, parse_messages(values["completion"], "completion", "assistant")))


FORMATS = (
    Format("openai-chat", "OpenAI chat", LAST, Form.COMPLETION, (make_conversation_part("messages"), SYSTEM, TOOLS), from_chat),
    Format("sharegpt", "ShareGPT", LAST, Form.COMPLETION, (make_conversation_part("conversations", "conversation"), SYSTEM, TOOLS), from_chat),
    Format(
        "orca",
        "Orca",
        "System_prompt becomes a system message, question the prompt and response the completion.",
        Form.COMPLETION,
        (FormatPart("system", SYSTEM.words, ("system_prompt", "system")), make_prompt_part("question"), make_completion_part("response")),
        from_completion,
    ),
    Format(
        "alpaca",
        "Alpaca",
        "Instruction and input are joined to the prompt, output is the completion.",
        Form.COMPLETION,
        (make_prompt_part("instruction"), CONTEXT, make_completion_part("output"), SYSTEM, HISTORY),
        from_completion,
    ),
    Format(
        "trl-completion",
        "TRL prompt and completion",
        "Prompt and completion.",
        Form.COMPLETION,
        (make_prompt_part("prompt"), make_completion_part("completion"), SYSTEM, TOOLS),
        from_completion,
    ),
)
