"""Answers of a judge kept by what was asked, in the run folder: a resumed attempt, or a completion said twice, costs nothing."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

FILE = "judge/answers.jsonl"  # inside a run folder


class KeptJudgements:
    """Without a folder they live as long as the process. Threads may share it; other processes may append to the file."""

    def __init__(self, folder: Path | None) -> None:
        self.path = folder / FILE if folder is not None else None
        self.answers: dict[str, str] = {}
        self.lock = threading.Lock()
        if self.path is not None and self.path.exists():
            for line in self.path.read_bytes().splitlines():
                try:
                    kept = json.loads(line)
                    self.answers[str(kept["key"])] = str(kept["answer"])
                except (ValueError, KeyError, TypeError):  # a line that a killed process left unfinished
                    continue

    def get(self, key: str) -> str | None:
        return self.answers.get(key)

    def put(self, key: str, answer: str) -> None:
        with self.lock:
            self.answers[key] = answer
            if self.path is None:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(handle, b"\n" * self.ends_torn() + json.dumps({"key": key, "answer": answer}).encode() + b"\n")
            finally:
                os.close(handle)

    def ends_torn(self) -> bool:
        """Whether the file's last line has no end."""
        assert self.path is not None
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            return bool(size) and (file.seek(size - 1), file.read(1))[1] != b"\n"


def make_question_key(model: str, question: str, max_tokens: int) -> str:
    return hashlib.sha256(json.dumps([model, question, max_tokens]).encode()).hexdigest()
