"""Answering in a worker: the trainers' sampling command, with what other packages' reward functions need in its environment."""

from __future__ import annotations

import json
import sys
from typing import Any

from lab.lib.child_environment import BRANCHER
from lab.lib.kept_process import Conversation, IdleProcess, KeptProcess
from lab.lib.refusals import Refusal
from lab.models.branches.models import Branch, Continuation, TokenAlternatives
from lab.models.branches.places import StoredPlace, find_stored_place
from lab.models.playground import sampling
from lab.models.playground.sampling import SamplingError, answer_sampler_question, pack_completion, stream_answer
from lab.models.policies.checkpoint_paths import FilesMissing, open_checkpoint
from lab.supervision.supervisor.run_folders import hold_run_file
from trainers.contract import arrays

SHOWN_NOTE = 1000


def start_branching_process() -> KeptProcess:
    return KeptProcess([sys.executable, "-m", "trainers", "sample"], BRANCHER)


idle_brancher = IdleProcess(start_branching_process)


def answer_branch(branch_id: str) -> None:
    branch = Branch.across_teams.select_related("rollout__run", "rollout__prompt", "checkpoint").filter(pk=branch_id).first()
    if branch is not None:
        answer_sampler_question(branch, idle_brancher, write_branch)


def answer_alternatives(alternatives_id: str) -> None:
    rows = TokenAlternatives.across_teams.select_related("rollout__run", "rollout__prompt", "checkpoint")
    alternatives = rows.filter(pk=alternatives_id).first()
    if alternatives is not None:
        answer_sampler_question(alternatives, idle_brancher, write_alternatives)


def write_alternatives(alternatives: TokenAlternatives, sampler: Conversation) -> bool:
    place = load_place(alternatives)
    request = {"ask": "alternatives", "token": place.token, "prefix": place.prefix, **encode_place(alternatives)}
    for line in stream_answer(sampler, json.dumps(request).encode()):
        if not alternatives.beats():
            return False
        if line.pop("event") == "alternatives":
            TokenAlternatives.objects.same_row(alternatives).update(result=line)
    return True


def write_branch(branch: Branch, sampler: Conversation) -> bool:
    """Whether all is written and scored; False when somebody stopped it. Raises SamplingError."""
    for line in stream_answer(sampler, encode_branch_request(branch)):
        if not branch.beats():
            return False
        if line["event"] == "loaded":
            note_start(branch, line)
        elif line["event"] == "written":
            for number, completion in enumerate(line["completions"]):
                Continuation.objects.update_or_create(branch=branch, number=number, defaults=pack_continuation(completion))
        elif line["event"] == "scored":
            scores = {name: line[name] for name in ("rewards", "reward", "problem")}
            Continuation.objects.filter(branch=branch, number=line["number"]).update(**scores)
        else:
            continue  # a heartbeat
        sampling.publish_sampling_update(branch)
    return True


def note_start(branch: Branch, line: dict[str, Any]) -> None:
    """What is known before the first token: what the checkpoint thought of the place."""
    fields = {name: line[name] for name in ("entropy", "logprob")}
    fields |= {"special_tokens": line["special"], "device": str(line["device"])[:50], "note": str(line["note"])[:SHOWN_NOTE]}
    if not branch.chosen_text:
        fields["chosen_text"] = str(line["text"])[:200]
    Branch.objects.same_row(branch).update(**fields)


def load_place(question: Branch | TokenAlternatives) -> StoredPlace:
    """Raises SamplingError."""
    try:
        return find_stored_place(question.rollout, question.place)
    except Refusal as error:
        raise SamplingError(str(error)) from None


def encode_place(question: Branch | TokenAlternatives) -> dict[str, Any]:
    """What every request says. Raises SamplingError when the checkpoint's files are gone."""
    if question.checkpoint is None:
        raise SamplingError(f"The files of {question.label} are no longer on disk.")
    try:
        folder = open_checkpoint(question.checkpoint)
    except FilesMissing as error:
        raise SamplingError(str(error)) from None
    prompt = [{"role": str(role), "content": str(content)} for role, content in question.rollout.prompt.messages]
    return {"folder": str(folder), "prompt": prompt, "temperature": question.temperature}


def encode_branch_request(branch: Branch) -> bytes:
    """Raises SamplingError."""
    rollout, place = branch.rollout, load_place(branch)
    about = {"run": str(hold_run_file(rollout.run)), "phase": rollout.phase, "reference": rollout.prompt.reference}
    kept = {"prefix": place.prefix, "turns": rollout.turns, "token": branch.chosen}
    how = {name: getattr(branch, name) for name in ("count", "max_tokens", "seed")}
    return json.dumps({"ask": "branch", **encode_place(branch), **about, **kept, **how}).encode()


def pack_continuation(completion: dict[str, Any]) -> dict[str, Any]:
    several = bool(completion["turns"])
    mask = arrays.pack_array(completion["mask"], "B") if several else b""
    return {**pack_completion(completion), "turns": completion["turns"], "mask": mask}
