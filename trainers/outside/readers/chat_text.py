"""Messages of a chat as the text of a rollout, and the turns of a text that a chat template wrote.

A rollout's completion is one text; ``Turn`` says which stretches of it somebody else than the policy wrote, in code points. A call of a tool is
written as Qwen's and Hermes' templates write it (``<tool_call>`` around JSON), thinking as ``<think>``: the lab shows both apart from the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from trainers.contract.events import Message, Turn
from trainers.contract.spool import UNSTORABLE

POLICY = "assistant"
THINKING = ("reasoning_content", "reasoning", "thinking")  # fields in which servers and datasets keep it
ROLE_TAGS = re.compile(r"<\|im_start\|>([a-z_]{1,20})\n")
# What stands between two stretches of the policy in a text decoded with its special tokens, or without them.
TOOL_TURN = re.compile(
    r"(?:<\|im_end\|>)?\n(?:<\|im_start\|>)?(?:user|tool)\n(?:<tool_response>\n?.*?\n?</tool_response>\n?)+(?:<\|im_end\|>)?\n(?:<\|im_start\|>)?assistant\n",
    re.DOTALL,
)
USER_TURN = re.compile(r"<\|im_end\|>\n(?:<\|im_start\|>(?!assistant)([a-z_]{1,20})\n.*?<\|im_end\|>\n)+<\|im_start\|>assistant\n", re.DOTALL)
PLAIN_PROMPT = re.compile(r"(?:system\n(?P<system>.*?)\n)?user\n(?P<user>.*?)\n(?:assistant\n(?:<think>\n)?)?", re.DOTALL)


def to_storable_text(text: str) -> str:
    """NUL and lone surrogates, which no database holds, as the contract writes them: one code point for one."""
    return UNSTORABLE.sub(lambda found: "\u2400" if found[0] == "\0" else "\ufffd", text)


def join_content(content: Any) -> str:
    """A message's content as text; parts that are no text (pictures) are left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(join_content(part.get("text", part.get("content", ""))) for part in content if isinstance(part, Mapping))
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)


def write_tool_call(call: Any) -> str:
    """A tool call: OpenAI's ``{"function": {"name", "arguments"}}``, a flat ``{"name", "arguments"}``, or either as a text of JSON."""
    if isinstance(call, str):
        try:
            call = json.loads(call)
        except ValueError:
            return f"<tool_call>\n{call}\n</tool_call>"
    asked = call.get("function", call) if isinstance(call, Mapping) else {}
    asked = asked if isinstance(asked, Mapping) else {"name": asked, "arguments": call.get("arguments", "")}
    arguments = asked.get("arguments", {})
    if isinstance(arguments, str):
        with suppress(ValueError):  # what the policy wrote may be no JSON: then it is shown as it is
            arguments = json.loads(arguments)
    text = json.dumps({"name": asked.get("name", ""), "arguments": arguments}, ensure_ascii=False, default=str)
    return "<tool_call>\n" + text.replace("</", "<\\/") + "\n</tool_call>"  # a text in it must not end the call


def write_message(message: Mapping[str, Any]) -> str:
    """Thinking, content and calls of one message, in the order in which a template writes them."""
    thought = next((join_content(message[name]) for name in THINKING if message.get(name)), "")
    content = join_content(message.get("content"))
    calls = message.get("tool_calls") or []
    parts = [f"<think>\n{thought}\n</think>\n"] if thought and "<think>" not in content else []
    parts += [content] if content else []
    parts += [write_tool_call(call) for call in calls if call] if isinstance(calls, Sequence) and not isinstance(calls, str) else []
    return to_storable_text("\n".join(parts))


def read_messages(value: Any) -> list[Mapping[str, Any]]:
    """Raises ValueError unless it is a list of messages, each with a role."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ValueError("is not a list of messages")
    for message in value:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ValueError("holds something that is not a message with a role")
    return list(value)


def make_prompt(messages: Iterable[Mapping[str, Any]]) -> list[Message]:
    return [Message(to_storable_text(str(message["role"])[:40]), write_message(message)) for message in messages]


def make_completion(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[Turn]]:
    """(text, turns in code points) of what followed the prompt; no turns where the policy wrote everything."""
    text, turns = "", []
    for place, message in enumerate(messages):
        own = write_message(message) + ("\n" if place + 1 < len(messages) else "")
        turns.append(Turn(to_storable_text(str(message["role"])[:40]), len(text), len(text) + len(own)))
        text += own
    return text, turns if any(turn.role != POLICY for turn in turns) else []


def parse_prompt(text: str) -> list[Message]:
    """The messages in a prompt that a ChatML template rendered, with its special tokens or without; any other text is the user's."""
    text = to_storable_text(text)
    tags = list(ROLE_TAGS.finditer(text))
    if tags and not text[: tags[0].start()].strip():
        ends = [*(tag.start() for tag in tags[1:]), len(text)]
        parts = [(tag[1], text[tag.end() : end].strip().removesuffix("<|im_end|>").rstrip("\n")) for tag, end in zip(tags, ends, strict=True)]
        return [Message(role, content) for role, content in parts if content or role != POLICY] or [Message("user", text)]
    plain = PLAIN_PROMPT.fullmatch(text)
    if plain is None:
        return [Message("user", text)]
    return [Message(role, plain[role]) for role in ("system", "user") if plain[role] is not None]


def find_template_turns(text: str) -> list[Turn]:
    """Who wrote which stretch of a completion decoded as one text, where a ChatML template left its marks; empty: the policy everything."""
    turns: list[Turn] = []
    at = 0
    found = sorted([*TOOL_TURN.finditer(text), *USER_TURN.finditer(text)], key=lambda match: (match.start(), -match.end()))
    for match in found:
        if match.start() < at:
            continue
        if match.start() > at:
            turns.append(Turn(POLICY, at, match.start()))
        turns.append(Turn("tool" if "<tool_response>" in match[0] else "user", match.start(), match.end()))
        at = match.end()
    return [*turns, Turn(POLICY, at, len(text))] if turns and at < len(text) else turns
