"""Texts and messages in other people's rows, brought into ``{"role", "content"}``; calls of tools, and what tools answered, are kept."""

from __future__ import annotations

import json
import re
from typing import Any

from lab.data.datasets.raw import RowError

Message = dict[str, Any]

ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant", "chatgpt": "assistant", "function_call": "assistant"}
ROLES |= {"tool": "tool", "function": "tool", "observation": "tool", "tool_response": "tool", "developer": "system"}
ROLES |= {role: role for role in ("user", "assistant", "system")}
TURN = re.compile(r"(?:^|\n\n)(Human|Assistant): ?")


def is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value == []


def parse_json_messages(value: Any) -> Any:
    """A list or an object that stands as JSON in a cell; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if isinstance(parsed, list):
            return parsed if parsed and all(isinstance(message, dict) for message in parsed) else value
        return parsed if isinstance(parsed, dict) and ("role" in parsed or "from" in parsed) else value
    return value


def decode_json_cell(value: str) -> Any:
    """A list of texts or numbers that stands as JSON in a cell."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def parse_messages(value: Any, name: str, role: str) -> list[Message]:
    """Text is one message of ``role``. Raises RowError."""
    value = parse_json_messages(value)
    if isinstance(value, str):
        return [{"role": role, "content": require_text(value, name)}]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        raise RowError(f"{name} is neither text nor a list of messages")
    return [parse_message(entry, name) for entry in value]


def parse_message(entry: Any, name: str) -> Message:
    if not isinstance(entry, dict):
        raise RowError(f"{name} holds something that is no message")
    speaker = str(entry.get("role") or entry.get("from")).lower()
    if speaker not in ROLES:
        raise RowError(f"{name} has the role {speaker[:40]!r}; known are user, assistant, system and tool")
    role, content = ROLES[speaker], entry.get("content") if entry.get("content") is not None else entry.get("value")
    calls = entry.get("tool_calls") or ([entry["function_call"]] if entry.get("function_call") else [])
    if speaker == "function_call":
        calls, content = json_calls(content, name), ""
    message: Message = {"role": role, "content": parse_message_content(content, name, role == "tool" or bool(calls))}
    if calls:
        message["tool_calls"] = tool_calls(calls, name, role)
    for key in ("name", "tool_call_id"):
        if entry.get(key):
            message[key] = require_text(entry[key], f"{key} in {name}")
    return message


def parse_message_content(content: Any, name: str, may_be_empty: bool) -> str:
    """Text, or a list of pieces of text as chat interfaces write it."""
    if isinstance(content, list) and all(isinstance(piece, dict) for piece in content):
        for piece in content:
            if not isinstance(piece.get("text"), str):
                raise RowError(f"{name} holds {str(piece.get('type') or 'a piece')[:40]!r}, which is no text")
        content = "\n".join(piece["text"] for piece in content)
    if may_be_empty and is_empty(content):
        return ""
    return require_text(content, name)


def json_calls(content: Any, name: str) -> list[Any]:
    """Calls that stand as JSON in the text of a message (ShareGPT)."""
    try:
        calls = json.loads(content) if isinstance(content, str) else content
    except (ValueError, RecursionError):
        raise RowError(f"{name} has a function_call that is not JSON") from None
    return calls if isinstance(calls, list) else [calls]


def tool_calls(calls: Any, name: str, role: str) -> list[dict[str, Any]]:
    """As OpenAI's interface and TRL write them: ``[{"type": "function", "function": {"name", "arguments"}}]``, with the id where there is one."""
    if role != "assistant":
        raise RowError(f"{name} has tool_calls in a message of {role}; only the assistant calls tools")
    if not isinstance(calls, list):
        raise RowError(f"{name} has tool_calls that are no list")
    return [tool_call(call, name) for call in calls]


def tool_call(call: Any, name: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"].strip():
        raise RowError(f"{name} has a tool call without the name of a function")
    arguments = function.get("arguments", {})
    if not isinstance(arguments, dict | str):
        raise RowError(f"{name} calls {function['name'][:40]!r} with arguments that are neither an object nor JSON text")
    if isinstance(arguments, dict):
        require_text(json.dumps(arguments, ensure_ascii=False), name)
    identity = {"id": require_text(call["id"], name)} if call.get("id") else {}
    called = {
        "name": require_text(function["name"], name),
        "arguments": arguments if isinstance(arguments, dict) else require_clean_text(arguments, name),
    }
    return {**identity, "type": "function", "function": called}


def require_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RowError(f"{name} is no text")
    if not value.strip():
        raise RowError(f"{name} is empty")
    return require_clean_text(value, name)


def require_clean_text(value: str, name: str) -> str:
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise RowError(f"{name} holds a NUL or a lone surrogate, which is no text")
    return value


def parse_dialogue(value: Any, name: str, ends: str = "assistant") -> list[Message]:
    """The messages of "\\n\\nHuman: …\\n\\nAssistant: …". A prompt ends with Human:, or with an empty Assistant: that waits for the answer."""
    if not isinstance(value, str):
        raise RowError(f"{name} is no text")
    pieces = TURN.split(value.lstrip("\n"))
    if len(pieces) < 3 or pieces[0].strip():
        raise RowError(f"{name} does not begin with Human: or Assistant:")
    turns = [("user" if who == "Human" else "assistant", words.strip()) for who, words in zip(pieces[1::2], pieces[2::2], strict=True)]
    if ends == "user" and turns[-1] == ("assistant", ""):
        turns.pop()
    messages = [{"role": role, "content": require_text(words, name)} for role, words in turns]
    if not messages or messages[-1]["role"] != ends:
        raise RowError(f"{name} ends with {'Human' if ends == 'assistant' else 'Assistant'}:")
    return messages


def is_dialogue(value: Any) -> bool:
    return isinstance(value, str) and TURN.match(value.lstrip("\n")) is not None


def tools_of(value: Any) -> list[Any] | None:
    """Descriptions of the tools that a row's conversation may use. Raises RowError."""
    try:
        tools = json.loads(value) if isinstance(value, str) and value.strip() else value
    except (ValueError, RecursionError):
        raise RowError("tools is not JSON") from None
    if is_empty(tools):
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError("tools is no list of descriptions")
    require_clean_text(json.dumps(tools, ensure_ascii=False), "tools")
    return tools
