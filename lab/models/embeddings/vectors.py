"""Making vectors in a worker: the trainers' command, a process of its own, computes them, and this stores them beside their rollouts."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import transaction

from lab.lib.child_environment import SAMPLER
from lab.lib.kept_process import Conversation, IdleProcess, KeptProcess, StartError
from lab.models.embeddings.models import SECONDS, Embedder, Embedding
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team

Floats = npt.NDArray[np.float32]
TYPE = np.dtype("<f2")
CHUNK = 64  # rollouts of a request
MOST_CHARACTERS = 20_000  # of a text; the embedder reads a thousand tokens or so of it
MOST_DIMENSIONS = 32_768
SHOWN_ERROR = 300


class EmbeddingError(RuntimeError):
    """No vectors came back; the message is one readable line."""


def start_embedder_process() -> KeptProcess:
    return KeptProcess([sys.executable, "-m", "trainers", "embed"], SAMPLER, HF_HUB_OFFLINE="1")


idle_embedder = IdleProcess(start_embedder_process)


def list_missing(team: Team, embedder: Embedder, ids: Sequence[int]) -> list[int]:
    """Those that have no vector yet, in their order."""
    known = set(Embedding.objects.of(team).filter(embedder=embedder, rollout__in=list(ids)).values_list("rollout_id", flat=True))
    return [pk for pk in ids if pk not in known]


def embed_missing(team: Team, embedder: Embedder, folder: Path, ids: Sequence[int], report: Callable[[int, int], None]) -> None:
    """Stores the vectors of rollouts that have none. ``report`` hears of every chunk how many were stored and how many texts were cut; what it raises
    ends the work, and the process. Raises EmbeddingError.
    """
    if not ids:
        return
    try:
        with Conversation(idle_embedder, SECONDS) as embedding:  # ended afterwards, with the memory of its model
            for start in range(0, len(ids), CHUNK):
                rollouts = list(
                    Rollout.objects.of(team).filter(pk__in=ids[start : start + CHUNK]).select_related("prompt").only("completion", "prompt__messages")
                )
                if not rollouts:  # deleted meanwhile
                    continue
                answer = ask_for_vectors(embedding, encode_request(embedder, folder, rollouts))
                store_vectors(embedder, [rollout.pk for rollout in rollouts], decode_vectors(answer, len(rollouts)))
                report(len(rollouts), int(answer["cut"]))
    except StartError as error:
        raise EmbeddingError(f"The embedder {error}.") from None


def encode_request(embedder: Embedder, folder: Path, rollouts: Sequence[Rollout]) -> bytes:
    items = [
        {
            "prompt": [[str(role), str(content)[-MOST_CHARACTERS:]] for role, content in rollout.prompt.messages],
            "completion": rollout.completion[:MOST_CHARACTERS],
        }
        for rollout in rollouts
    ]
    return json.dumps({"folder": str(folder), "kind": embedder.kind, "items": items}).encode()


def ask_for_vectors(embedding: Conversation, request: bytes) -> dict[str, Any]:
    """Raises EmbeddingError."""
    try:
        embedding.ask(request)
        if text := embedding.read_line():
            answer: dict[str, Any] = json.loads(text)
            return answer
        code = embedding.exit_code()
    except (OSError, ValueError) as error:
        raise EmbeddingError(f"Embedding was aborted: {embedding.last_words() or error}"[:SHOWN_ERROR]) from None
    if embedding.is_late():
        raise EmbeddingError(f"Embedding timed out after {SECONDS / 60:.0f} min. Run it again: vectors so far are kept.")
    raise EmbeddingError((embedding.last_words() or f"Embedding ended with exit code {code}.")[:SHOWN_ERROR])


def decode_vectors(answer: dict[str, Any], count: int) -> npt.NDArray[np.float16]:
    """(N, D). Raises EmbeddingError for anything else, values that are not finite included."""
    raw, dimension = base64.b64decode(answer["vectors"]), int(answer["dimension"])
    if not 0 < dimension <= MOST_DIMENSIONS or len(raw) != count * dimension * TYPE.itemsize:
        raise EmbeddingError(f"The embedder gave {len(raw)} bytes for {count} rollouts, which are no vectors of {dimension} numbers.")
    vectors = np.frombuffer(raw, dtype=TYPE).reshape(count, dimension)
    if not np.isfinite(vectors).all():
        raise EmbeddingError("The embedder gave values that are not finite: its weights are damaged, or it diverged in training.")
    return vectors


def store_vectors(embedder: Embedder, ids: Sequence[int], vectors: npt.NDArray[np.float16]) -> None:
    """Of rollouts that still exist; locked, so that none is deleted under its new vector. Raises EmbeddingError for another dimension."""
    if not embedder.dimension:
        Embedder.objects.same_row(embedder).filter(dimension=0).update(dimension=vectors.shape[1])
        embedder.refresh_from_db()
    if embedder.dimension != vectors.shape[1]:
        raise EmbeddingError(f"The embedder gave {vectors.shape[1]} dimensions and {embedder.dimension} before. Start a new clustering.")
    with transaction.atomic():
        there = lock_rollouts(ids)
        rows = [Embedding(rollout_id=pk, embedder=embedder, vector=row.tobytes()) for pk, row in zip(ids, vectors, strict=True) if pk in there]
        Embedding.objects.bulk_create(rows, ignore_conflicts=True)


def lock_rollouts(ids: Sequence[int]) -> set[int]:
    """Those that exist, kept from being deleted until the transaction ends."""
    rows = Rollout.across_teams.select_for_update(of=("self",), no_key=True).filter(pk__in=list(ids)).order_by("pk")
    return set(rows.values_list("pk", flat=True))


def load_vectors(team: Team, embedder: Embedder, ids: Sequence[int]) -> tuple[list[int], Floats]:
    """(ids, (N, D) float32) of those of the rollouts that have a vector, ascending."""
    rows = Embedding.objects.of(team).filter(embedder=embedder, rollout__in=list(ids)).order_by("rollout_id").values_list("rollout_id", "vector")
    return unpack_vectors(embedder, list(rows.iterator()))


def unpack_vectors(embedder: Embedder, rows: Sequence[tuple[int, Any]]) -> tuple[list[int], Floats]:
    """Rows of another size than the embedder's are left out."""
    size = embedder.dimension * TYPE.itemsize
    kept = [(pk, bytes(vector)) for pk, vector in rows if len(vector) == size]
    if not kept or not size:
        return [], np.zeros((0, embedder.dimension), dtype=np.float32)
    joined = np.frombuffer(b"".join(vector for _, vector in kept), dtype=TYPE)
    return [pk for pk, _ in kept], joined.reshape(len(kept), embedder.dimension).astype(np.float32)


def centre_vectors(vectors: Floats) -> Floats:
    """(N, D) of length 1 after their mean is taken off: what all have in common, most of a language model's states, says nothing (Mu and Viswanath
    2018). A vector that is the mean stays 0.
    """
    rest = vectors - vectors.mean(0, keepdims=True)
    lengths = np.linalg.norm(rest, axis=1, keepdims=True)
    scaled: Floats = np.divide(rest, lengths, out=np.zeros_like(rest), where=lengths > 1e-4)  # float16 knows a length no better
    return scaled
