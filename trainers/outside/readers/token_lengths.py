"""How many code points of a completion each of its tokens adds: what a page needs to colour the text by what was measured on its tokens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import SourceError

LOOK_BACK = 6  # tokens decoded again before a token, so that what it adds does not depend on where decoding starts
TORN = "\ufffd"


class TokenLengths:
    """For one tokenizer, which the package ``tokenizers`` reads. Raises SourceError where there is none, or no such package."""

    def __init__(self, name: str) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise SourceError("--tokenizer needs the package tokenizers: pip install tokenizers") from None
        path = find_tokenizer_file(name)
        try:
            self.tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises plain exceptions
            raise SourceError(f"--tokenizer: {path} cannot be read: {error}") from None
        self.special = {id_ for id_, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def count_characters(self, ids: list[int], text: str) -> list[int] | None:
        """(T,) code points, which sum to those of ``text``; None where the ids do not spell it."""
        if any(id_ < 0 for id_ in ids) or self.decode(ids) != text:
            return None
        counts, start, before = [], 0, ""
        for place, id_ in enumerate(ids):
            if id_ in self.special:
                counts.append(0)
                continue
            now = self.decode(ids[start : place + 1])
            if now.endswith(TORN) and len(ids) > place + 1:
                counts.append(0)  # the first bytes of a character that a later token completes
                continue
            counts.append(max(0, len(now) - len(before)))
            if place - start >= 4 * LOOK_BACK:
                start = place + 1 - LOOK_BACK
                now = self.decode(ids[start : place + 1])
            before = now
        return counts if sum(counts) == len(text) else None


def find_tokenizer_file(name: str) -> Path:
    """A file, a folder with tokenizer.json, or a model in the hub's cache on this machine. Raises SourceError."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if (path / "tokenizer.json").is_file():
        return path / "tokenizer.json"
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    found = sorted(cache.glob(f"models--{name.replace('/', '--')}/snapshots/*/tokenizer.json")) if not set(name) & set("*?[") else []
    if found:
        return found[-1]
    raise SourceError(f"--tokenizer {name}: name tokenizer.json, a folder that holds it, or a model in {cache}")
