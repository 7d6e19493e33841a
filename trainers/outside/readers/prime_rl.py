"""prime-rl's episodes and metrics: ``rollouts/step_<step>/{train,eval}/effective/traces.jsonl`` and ``metrics.jsonl`` in its output folder.

Read from PrimeIntellect-ai/prime-rl, commit 559b44772e471d1538537b8805cc77f3824a5e64, ``src/prime_rl/monitors/file.py``, and
PrimeIntellect-ai/verifiers, commit a60a606ecc4d309247edf9ff92c3eabca362781f, ``verifiers/v1/episode.py``, ``trace.py`` and ``graph.py``: a line is
an episode with ``traces``, each a graph of messages (``nodes``, of which a model call ``sampled`` some) with ``rewards`` (score and weight),
``metrics``, ``stop_condition`` and ``calls``. Nodes have ``token_ids``, ``mask``, sampling ``logprobs`` and ``advantages`` of the sampled tokens. Of
several branches of a trace the last is read, and only traces of a trainable agent. Lines that are a trace themselves (before August 2026) and
``step_<step>/train_rollouts.jsonl`` and ``eval_rollouts*.jsonl`` with verifiers' older rows (``prompt``, ``completion``, ``reward``, ``metrics``;
before July 2026) are read as well. ``all`` beside ``effective`` repeats it and is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainers.contract.events import Metrics, Turn
from trainers.outside.readers.base import (
    BrokenRow,
    Phase,
    ReaderOptions,
    SourceFormat,
    SourceOpening,
    list_folder,
    read_number,
    read_number_list,
    read_step,
)
from trainers.outside.readers.chat_text import make_completion, make_prompt, read_messages
from trainers.outside.readers.json_lines import is_row_with
from trainers.outside.readers.rollout_drafts import RolloutDraft, TokenColumns, collect_numbers
from trainers.outside.readers.step_files import StepFile, StepFilesReader

STEP = re.compile(r"step_(\d{1,9})")
OLDER = re.compile(r"(train|eval)_rollouts.*\.jsonl")
METRICS = "metrics.jsonl"
TRUNCATED = ("max_input_tokens", "max_output_tokens", "max_total_tokens", "context_length")
PHASES: dict[str, Phase] = {"train": "train", "eval": "heldout"}


def list_prime_files(path: Path) -> list[StepFile]:
    """Of the output folder or its folder ``rollouts``. Metrics last: they name their step themselves."""
    found = []
    for folder in (one for place in (path, path / "rollouts") for one in list_folder(place)):
        if not (named := STEP.fullmatch(folder.name)):
            continue
        step = int(named[1])
        for kind, phase in PHASES.items():
            traces = folder / kind / "effective" / "traces.jsonl"
            found += [StepFile(traces, f"{folder.name}/{kind}/effective/traces.jsonl", step, phase)] if traces.is_file() else []
        older = [(file, OLDER.fullmatch(file.name)) for file in list_folder(folder)]
        found += [StepFile(file, f"{folder.name}/{file.name}", step, PHASES[match[1]]) for file, match in older if match]
    found.sort(key=lambda file: (file.step, file.phase != "train", file.key))
    return [*found, StepFile(path / METRICS, METRICS, 0)] if found and (path / METRICS).is_file() else found


def recognize_prime_rl_output(path: Path) -> bool:
    rows = [file for file in list_prime_files(path) if file.key != METRICS]
    return any(is_row_with(file.path, (name,)) for file in rows[:3] for name in ("traces", "nodes", "completion"))


class PrimeRlReader(StepFilesReader):
    def __init__(self, path: Path, position: dict[str, Any], options: ReaderOptions) -> None:
        super().__init__(path, position, options)
        self.brings_metrics = (path / METRICS).is_file()

    def describe_opening(self) -> SourceOpening:
        return SourceOpening(config={"framework": "prime-rl", "output": str(self.path)})

    def list_files(self) -> list[StepFile]:
        return list_prime_files(self.path)

    def read_metrics(self, row: dict[str, Any], file: StepFile, time: float) -> Metrics | None:
        if file.key != METRICS:
            return None
        values = {name: value for name, value in collect_numbers(row, ("step", "time")).items() if value is not None}
        at = row.get("time")
        return Metrics(attempt=1, time=float(at) if isinstance(at, int | float) else time, step=read_step(row.get("step")), values=values)

    def draft_rollouts(self, row: dict[str, Any], file: StepFile) -> list[RolloutDraft]:
        if "traces" not in row:
            return [draft_trace(row, {}) if "nodes" in row else draft_older_row(row)]
        traces = row["traces"]
        if not isinstance(traces, list) or not all(isinstance(trace, dict) for trace in traces):
            raise BrokenRow("traces is not a list of traces")
        return [draft_trace(trace, row) for trace in traces if is_trainable(trace)]


def is_trainable(trace: Mapping[str, Any]) -> bool:
    agent = trace.get("agent")
    return not (isinstance(agent, Mapping) and agent.get("trainable") is False)


def draft_trace(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> RolloutDraft:
    nodes = follow_last_branch(trace.get("nodes"))
    messages = read_checked_messages([node.get("message") for node in nodes], "nodes")
    first = next((place for place, node in enumerate(nodes) if node.get("sampled")), len(nodes))
    text, turns = make_completion(messages[first:])
    rewards, reward = read_weighted_rewards(trace.get("rewards"))
    task = trace.get("task") or episode.get("task") or {}
    data = task.get("data") if isinstance(task, Mapping) else None
    answer = data.get("answer") if isinstance(data, Mapping) else None
    group = episode.get("group")
    columns = read_node_tokens(nodes[first:])
    advantages = [one for node in nodes[first:] for one in node.get("advantages") or [] if isinstance(one, int | float)]
    return RolloutDraft(
        prompt=make_prompt(messages[:first]),
        completion=text,
        turns=turns,
        reward=reward,
        rewards=rewards | collect_numbers(trace.get("metrics") or {}, rewards),
        reference=answer if isinstance(answer, str) else "",
        advantage=sum(advantages) / len(advantages) if advantages else None,
        finish_reason=read_finish_reason(trace),
        group=str(group["id"]) if isinstance(group, Mapping) and group.get("id") else None,
        tokens=columns,
    )


def follow_last_branch(nodes: Any) -> list[dict[str, Any]]:
    """The path to the last node that no other follows. Raises BrokenRow for what is no graph."""
    if not isinstance(nodes, list) or not nodes or not all(isinstance(node, dict) for node in nodes):
        raise BrokenRow("nodes is not a list of messages")
    parents = {node.get("parent") for node in nodes}
    place: int | None = next((place for place in reversed(range(len(nodes))) if place not in parents), None)
    path: list[dict[str, Any]] = []
    while place is not None:
        if not isinstance(place, int) or not 0 <= place < len(nodes) or len(path) > len(nodes):
            raise BrokenRow("nodes have parents that are not there")
        path.append(nodes[place])
        place = nodes[place].get("parent")
    return path[::-1]


def read_checked_messages(value: Any, name: str) -> list[Mapping[str, Any]]:
    try:
        return read_messages(value)
    except ValueError as error:
        raise BrokenRow(f"{name} {error}") from None


def read_weighted_rewards(given: Any) -> tuple[dict[str, float | None], float | None]:
    """(score of each reward, their weighted sum); no sum where none was scored."""
    given = given if isinstance(given, Mapping) else {}
    scores = {str(name): read_number(one, "score") if isinstance(one, Mapping) else None for name, one in given.items()}
    weights = {str(name): (read_number(one, "weight") if isinstance(one, Mapping) else None) for name, one in given.items()}
    known = [(1.0 if weights[name] is None else weights[name] or 0.0) * score for name, score in scores.items() if score is not None]
    return collect_numbers({name: score for name, score in scores.items() if score is not None}), sum(known) if known else None


def read_finish_reason(trace: Mapping[str, Any]) -> str:
    if trace.get("stop_condition") == "max_turns":
        return "turns"
    calls = trace.get("calls")
    last = next((call for call in reversed(calls) if isinstance(call, Mapping) and not call.get("error")), {}) if isinstance(calls, list) else {}
    if trace.get("stop_condition") in TRUNCATED or last.get("finish_reason") == "length":
        return "length"
    return "stop" if last.get("finish_reason") else ""


def read_node_tokens(nodes: Sequence[Mapping[str, Any]]) -> TokenColumns | None:
    """Of the completion; None where a message came without tokens. What the template put before the policy's first token is the prompt's."""
    ids: list[int] = []
    mask: list[float | None] = []
    logprobs: list[float | None] = []
    advantages: list[float | None] = []
    turns: list[Turn] = []
    has_advantages = True
    for node in nodes:
        own, inside = node.get("token_ids"), node.get("mask")
        if not isinstance(own, list) or not own or not isinstance(inside, list) or len(inside) != len(own):
            return None
        sampled = sum(1 for one in inside if one)
        told = read_number_list(node, "logprobs", sampled) if sampled else None
        gained = read_number_list(node, "advantages", sampled) if sampled else None
        has_advantages = has_advantages and (gained is not None or not sampled)
        start = next((place for place, one in enumerate(inside) if one), len(own))
        start = start if not ids else 0
        lead = next((place for place, one in enumerate(inside) if one), len(own))
        add_turn(turns, "tool", len(ids), len(ids) + max(0, lead - start)) if ids else None
        said, won = iter(told or [None] * sampled), iter(gained or [None] * sampled)
        for id_, one in zip(own[start:], inside[start:], strict=True):
            ids.append(int(id_))
            mask.append(1.0 if one else 0.0)
            logprobs.append(next(said) if one else None)
            advantages.append(next(won) if one else None)
        role = "assistant" if sampled else "tool"
        add_turn(turns, role, turns[-1].end if turns else 0, len(ids))
    if not ids:
        return None
    found = TokenColumns(ids, sampler_logprobs=logprobs, mask=mask, advantages=advantages if has_advantages else None, spelled=True)
    found.turns = turns if any(turn.role != "assistant" for turn in turns) else []
    return found


def add_turn(turns: list[Turn], role: str, start: int, end: int) -> None:
    """Joined to the last one where the same wrote it."""
    if end <= start:
        return
    if turns and turns[-1].role == role:
        turns[-1] = Turn(role, turns[-1].start, end)
    else:
        turns.append(Turn(role, start, end))


def draft_older_row(row: Mapping[str, Any]) -> RolloutDraft:
    """A row of verifiers before its graphs."""
    text, turns = make_completion(read_checked_messages(row.get("completion"), "completion"))
    group = row.get("example_id")
    usage = row.get("token_usage")
    length = usage.get("final_output_tokens") if isinstance(usage, Mapping) else None
    answer = row.get("answer")
    return RolloutDraft(
        prompt=make_prompt(read_checked_messages(row.get("prompt"), "prompt")),
        completion=text,
        turns=turns,
        reward=read_number(row, "reward"),
        rewards=collect_numbers(row.get("metrics") or {}),
        reference=answer if isinstance(answer, str) else "",
        advantage=read_number(row, "advantage"),
        finish_reason="" if row.get("is_truncated") is None else "length" if row["is_truncated"] else "stop",
        length=int(length) if isinstance(length, int | float) and length >= 0 else None,
        group=None if group is None else f"{row.get('env_name', row.get('task', ''))}/{group}",
    )


FORMAT = SourceFormat(
    name="prime-rl",
    title="prime-rl: episodes and metrics of its file monitor",
    looks_for="rollouts/step_<step>/train/effective/traces.jsonl, or step_<step>/train_rollouts.jsonl",
    example='step_12/train/effective/traces.jsonl: {"group": {"id": "g1"}, "traces": [{"nodes": [{"message": {"role": "user", "content": "3 + 4?"}},'
    ' {"parent": 0, "sampled": true, "message": {"role": "assistant", "content": "7"}}], "rewards": {"correct": {"score": 1.0, "weight": 1.0}}}]}',
    recognize=recognize_prime_rl_output,
    open=PrimeRlReader,
    gives="calls of tools, groups, weighted rewards, advantages, finish reasons, metrics; with --tokenizer tokens and log-probabilities",
)
