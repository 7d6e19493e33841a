"""``python -m trainers score``: completions that somebody tries a definition on, and the scores of shadows, a request a line.

A request: ``{"definition": {…}, "rows": [{"completion": "…", "reference": "…", "data": {…}, "prompt": […]}], "seconds": 60}``. Its answer:
``{"ok": true, "scores": [{"value": 1.0, "error": "", "seconds": 0.002}], "counted": {"calls": 3}, "seconds": 0.1}``, or what is wrong:
``{"ok": false, "problems": […]}``.
What a definition loaded stays loaded for requests with the same one.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict
from trainers.contract.problems import Problem, SpecError
from trainers.contract.refusals import decode_strict_json, problems_of
from trainers.contract.reward_definitions import MOST_DEPTH, RewardDefinition, measure_depth
from trainers.rewards.composition import build_reward
from trainers.rewards.definition_checks import find_definition_problems
from trainers.rewards.scores import RewardFailed, Scorer, ScoringContext
from trainers.tasks.base import Example

LARGEST_LINE = 32 << 20  # bytes of a request
MOST_ROWS = 2000
DEFAULT_SECONDS, MOST_SECONDS = 60.0, 3600.0
KEPT = 8  # definitions whose scorers stay loaded
DEFINITION: TypeAdapter[Any] = TypeAdapter(RewardDefinition)


class OneMessage(Strict):
    role: str
    content: str


class ScoredRow(Strict):
    completion: str
    reference: str = ""
    data: dict[str, Any] = {}
    prompt: str | list[OneMessage] = ""


class ScoringRequest(Strict):
    """``key`` comes back with the answer. ``folder``: of the run whose cache of judgements is used. ``device``: of models."""

    definition: RewardDefinition
    rows: list[ScoredRow] = Field(max_length=MOST_ROWS)
    seconds: float = Field(DEFAULT_SECONDS, gt=0, le=MOST_SECONDS)
    key: int = 0
    folder: str | None = None
    device: str = Field("auto", pattern="^(auto|cpu|cuda)$")


class OutOfTime(BaseException):
    """The request took longer than it may. No function's own handling of errors catches it."""


class KeptScorers:
    """Scorers by definition, the last used ones kept."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, Scorer] = OrderedDict()
        self.models: dict[str, object] = {}

    def get(self, request: ScoringRequest) -> Scorer:
        """Raises SpecError."""
        name = json.dumps([request.definition.model_dump(), request.folder, request.device], sort_keys=True)
        if name not in self.kept:
            depth = measure_depth(request.definition)
            if depth > MOST_DEPTH:
                message = f"compositions are nested {depth} deep"
                raise SpecError([Problem("definition", None, message, f"nest them at most {MOST_DEPTH} deep", given=False)])
            if problems := find_definition_problems(request.definition, "definition"):
                raise SpecError(problems)
            self.kept[name] = build_reward(request.definition)
            self.kept[name].open(ScoringContext(Path(request.folder) if request.folder else None, request.device, self.models))
            while len(self.kept) > KEPT:
                self.kept.popitem(last=False)[1].close()
        self.kept.move_to_end(name)
        return self.kept[name]

    def close(self) -> None:
        for scorer in self.kept.values():
            scorer.close()


def answer_scoring_requests(requests: Iterable[bytes]) -> bool:
    """One answer a request. Whether the last one was scored."""
    scorers, fine = KeptScorers(), True
    try:
        for line in requests:
            with redirect_stdout(sys.stderr):  # what a model's package prints is no answer
                answer = answer_scoring_line(scorers, line)
            fine = answer["ok"]
            write_answer(answer)
    finally:
        scorers.close()
    return fine


def answer_scoring_line(scorers: KeptScorers, line: bytes) -> dict[str, Any]:
    key = 0
    try:
        request = parse_scoring_request(line)
        key = request.key
        return {"ok": True, "key": key, **score_request(scorers, request)}
    except SpecError as error:
        return {"ok": False, "key": key, "problems": error.as_json()}


def parse_scoring_request(line: bytes) -> ScoringRequest:
    """Raises SpecError."""
    if len(line) > LARGEST_LINE:
        raise SpecError([Problem("request", f"{len(line)} bytes", f"is larger than {LARGEST_LINE} bytes", "send fewer rows at once")])
    try:
        return ScoringRequest.model_validate(decode_strict_json(line, "the request"))
    except ValidationError as error:
        raise SpecError(problems_of(error, ScoringRequest)) from None


def score_request(scorers: KeptScorers, request: ScoringRequest) -> dict[str, Any]:
    """Raises SpecError."""
    began = time.perf_counter()
    rows = [(row.completion, make_example(row)) for row in request.rows]
    try:
        with limit_time(request.seconds):
            scorer = scorers.get(request)
            scores = scorer.score_batch(rows)
    except OutOfTime:
        raise SpecError([Problem("seconds", request.seconds, "scoring took longer", "score fewer rows, or allow more time")]) from None
    except RewardFailed as error:
        raise SpecError([Problem("definition", None, str(error), "", given=False)]) from error
    said = [{"value": score.value, "error": score.error, "seconds": score.seconds} for score in scores]
    return {"scores": said, "counted": scorer.collect(), "seconds": time.perf_counter() - began}


def make_example(row: ScoredRow) -> Example:
    if isinstance(row.prompt, str):
        return Example([Message("user", row.prompt)] if row.prompt else [], row.reference, row.data)
    return Example([Message(message.role, message.content) for message in row.prompt], row.reference, row.data)


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raises OutOfTime inside after so long. In the main thread only."""

    def end(number: int, frame: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def score_row_lines(path: Path, lines: Iterable[bytes]) -> bool:
    """Rows of standard input, each scored and said before the next is read. Raises SpecError for the definition; False when a row was none."""
    try:
        definition = DEFINITION.validate_python(decode_strict_json(path.read_bytes(), str(path)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SpecError([Problem(".".join(map(str, first["loc"])) or "definition", None, first["msg"], given=False)]) from None
    scorers, fine = KeptScorers(), True
    try:
        scorers.get(ScoringRequest(definition=definition, rows=[], seconds=DEFAULT_SECONDS, device="auto"))
        for line in lines:
            request = json.dumps({"definition": definition.model_dump(), "rows": []}).encode()[:-2] + line.strip() + b"]}"
            answer = answer_scoring_line(scorers, request)
            fine = fine and answer["ok"]
            write_answer(answer["scores"][0] if answer["ok"] else {"value": None, "error": "", "problems": answer["problems"]})
    finally:
        scorers.close()
    return fine


def write_answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer, allow_nan=False) + "\n")
    sys.stdout.flush()
