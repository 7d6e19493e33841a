"""The question in the prompt of a row: a plain string, or the last message of the user."""

from __future__ import annotations

from typing import Any

from trainers.contract.dataset_tools.base import RowDropped

NO_QUESTION = "prompts without a question of the user"


def find_user_question(prompt: Any) -> tuple[int, str]:
    """The place of the last message of the user and its text; place 0 of a prompt that is a text. Raises RowDropped."""
    if isinstance(prompt, str):
        return 0, prompt
    for place in range(len(prompt) - 1, -1, -1) if isinstance(prompt, list) else ():
        message = prompt[place]
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str):
            return place, message["content"]
    raise RowDropped(NO_QUESTION)


def replace_question(prompt: Any, place: int, text: str) -> Any:
    """A new prompt of the same shape with another text in this place."""
    if isinstance(prompt, str):
        return text
    return [*prompt[:place], {**prompt[place], "content": text}, *prompt[place + 1 :]]
