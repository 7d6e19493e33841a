"""Answering a question in a worker: the trainers' command in a process of its own, and what its answer means beside what training stored."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.lib.child_environment import REPLAY
from lab.lib.kept_process import Conversation, IdleProcess, KeptProcess, StartError
from lab.lib.refusals import Refusal
from lab.rollouts.replay.batch_span import select_batch_rollouts
from lab.rollouts.replay.models import FORMAT, SECONDS, Replay
from lab.rollouts.replay.questions import request_of
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from trainers.contract.arrays import PackError, unpack_array

Floats = npt.NDArray[np.float64]
SAME = 1e-4  # a smaller mean difference is rounding
NEAR = 1e-6  # effective advantages closer to 0 than this have no sign
SHOWN_ERROR = 300


class ReplayError(RuntimeError):
    """The command came to no answer; the message is one readable line."""


def answer_question(replay_id: str) -> None:
    replay = Replay.across_teams.filter(pk=replay_id).select_related("run").first()
    if replay is None or not replay.claim():
        return
    try:
        given = run_replay_command(request_of(replay))
        if not given["ok"]:
            replay.fail("It cannot be replayed.", given["problems"])
            return
        replay.finish(compare_replayed_rollouts(replay, given))
    except (ReplayError, Refusal, PackError) as error:
        replay.fail(str(error))
    except Exception as error:  # nobody waits for ever for an answer that will not come
        replay.fail(f"The replay failed: {type(error).__name__}.")
        raise


def start_replay_process() -> KeptProcess:
    return KeptProcess([sys.executable, "-m", "trainers", "replay", "-"], REPLAY, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")


idle_replay = IdleProcess(start_replay_process)


def run_replay_command(request: bytes) -> dict[str, Any]:
    """The answer of ``python -m trainers replay``; ``request``: JSON on one line. Raises ReplayError."""
    try:
        with Conversation(idle_replay, SECONDS) as replay:
            replay.ask(request)
            if text := replay.read_line():
                given: dict[str, Any] = json.loads(text)
                replay.answered = True
                return given
            code = replay.exit_code()
            if replay.is_late():
                raise ReplayError(f"The replay timed out after {SECONDS:.0f} s. Choose a single group or fewer methods.")
            raise ReplayError(f"The replay failed with exit code {code}: {replay.last_words() or 'no output'}"[:SHOWN_ERROR])
    except StartError as error:
        raise ReplayError(f"The replay {error}.") from None
    except (OSError, ValueError) as error:
        raise ReplayError(f"The replay was aborted: {error}"[:SHOWN_ERROR]) from None


def compare_replayed_rollouts(replay: Replay, given: dict[str, Any]) -> dict[str, Any]:
    """The answer for the rollouts that were asked for, each with how far it is from what training stored, and all of them in figures."""
    chosen = {
        rollout.pk: rollout
        for rollout in select_batch_rollouts(replay.run, replay.step)
        if replay.group in (None, rollout.group) and rollout.step == replay.step
    }
    tokens = RolloutTokens.across_teams.in_bulk(list(chosen))
    members = [
        build_member_comparison(chosen[replayed["id"]], tokens[replayed["id"]], replayed)
        for replayed in given["rollouts"]
        if replayed["id"] in chosen
    ]
    if not members:
        raise ReplayError(given["notes"][0].capitalize() + "." if given["notes"] else "None of the selected rollouts could be replayed.")
    members.sort(key=lambda member: (-member["change"], member["group"], member["sample"]))
    return {
        "format": FORMAT,
        **{key: given[key] for key in ("notes", "scale", "methods")},
        "members": members,
        "summary": summarize_replayed_members(members),
    }


def build_member_comparison(rollout: Rollout, tokens: RolloutTokens, replayed: dict[str, Any]) -> dict[str, Any]:
    """What is told of a member. ``before`` and ``after``: means of the effective advantage over the tokens in the loss; ``change``: the mean of the
    size of the difference; ``flipped``: tokens whose sign is another."""
    before, after, mask = load_effective_advantages(rollout, tokens, replayed)
    before, after = before[mask], after[mask]
    flips = find_sign_flips(before, after)
    return {
        **replayed,
        "group": rollout.group,
        "sample": rollout.sample,
        "before": average_advantages(before),
        "after": average_advantages(after),
        "weighed_before": bool(tokens.weights),
        "tokens": len(before),
        "flipped": int(flips.sum()),
        "change": average_advantages(np.abs(after - before)),
        "sign_flipped": bool(find_sign_flips(np.array([average_advantages(before)]), np.array([average_advantages(after)]))[0]),
    }


def average_advantages(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def load_effective_advantages(rollout: Rollout, tokens: RolloutTokens, replayed: dict[str, Any]) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """(T,) effective advantages (advantage x weight) as stored and as replayed, and which tokens are in the loss. Raises PackError."""
    mask = unpack_array(bytes(tokens.mask)) > 0
    count = len(unpack_array(bytes(tokens.ids)))
    inside = mask if len(mask) else np.ones(count, dtype=bool)
    before = compute_effective_advantages(rollout.advantage or 0.0, bytes(tokens.token_advantages), bytes(tokens.weights), count)
    after = compute_effective_advantages(
        replayed["advantage"], base64.b64decode(replayed["token_advantages"]), base64.b64decode(replayed["weights"]), count
    )
    return before, after, inside


def compute_effective_advantages(advantage: float, own: bytes, weights: bytes, count: int) -> Floats:
    """(T,): every token's own advantage, else the rollout's, times its weight."""
    values = unpack_array(own).astype(np.float64) if own else np.full(count, advantage)
    factors = unpack_array(weights).astype(np.float64) if weights else np.ones(count)
    if not len(values) == len(factors) == count:
        raise PackError(f"{count} tokens, but {len(values)} advantages and {len(factors)} weights")
    return values * factors


def find_sign_flips(before: Floats, after: Floats) -> npt.NDArray[np.bool_]:
    """Where one pushes a token up and the other pushes it down."""
    return (np.abs(before) > NEAR) & (np.abs(after) > NEAR) & (np.sign(before) != np.sign(after))


def summarize_replayed_members(members: list[dict[str, Any]]) -> dict[str, Any]:
    stored = np.array([member["before"] for member in members])
    replayed = np.array([member["after"] for member in members])
    varies = len(members) > 1 and stored.std() > NEAR and replayed.std() > NEAR
    tokens = sum(member["tokens"] for member in members)
    return {
        "nothing": not stored.any() and not replayed.any(),
        "same": all(member["change"] < SAME for member in members),
        "members": len(members),
        "flipped_members": sum(member["sign_flipped"] for member in members),
        "tokens": tokens,
        "flipped_tokens": sum(member["flipped"] for member in members),
        "correlation": float(np.corrcoef(stored, replayed)[0, 1]) if varies else None,
        "change": sum(member["change"] * member["tokens"] for member in members) / tokens if tokens else 0.0,
    }
