"""The rollouts nearest to one, among all of the team that have a vector by the same embedder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from django.db.models import Count, Exists, OuterRef

from lab.models.embeddings.models import Embedder, Embedding, Source
from lab.models.embeddings.vectors import centre_vectors, unpack_vectors
from lab.rollouts.comparison.divergence import CONTEXT, count_common_prefix
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces
from lab.teams.accounts.models import Team

NEAREST = 20
MOST_COMPARED = 50_000  # vectors, those of the newest rollouts
MOST_BYTES = 64 << 20  # of their vectors
READ = 20_000  # characters of completions in which the first difference is looked for
EXCERPT = 240


@dataclass(frozen=True)
class Neighbour:
    """``similarity``: cosine. ``shared``: characters that its completion and the rollout's begin with; ``differs``: what it goes on with."""

    rollout: Rollout
    similarity: float
    same: bool
    shared: int
    before: str
    differs: str

    @property
    def before_pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.before))

    @property
    def pieces(self) -> list[Piece]:
        return list(iterate_text_pieces(self.differs))

    @property
    def head(self) -> list[Piece]:
        return list(iterate_text_pieces(self.rollout.completion[:EXCERPT]))


@dataclass(frozen=True)
class SimilarRollouts:
    """``compared`` other rollouts of ``stored`` with a vector; ``centred``: their mean was taken off first."""

    neighbours: list[Neighbour]
    compared: int
    stored: int
    centred: bool


def list_embedders(team: Team, rollout: Rollout | None = None) -> list[Embedder]:
    """Those with vectors, the most first, each with ``vectors``; with a rollout those that have its vector before others, as ``knows``."""
    rows = Embedder.objects.of(team).annotate(vectors=Count("embeddings")).filter(vectors__gt=0).order_by("-vectors", "-pk")
    if rollout is None:
        return list(rows)
    knows = Exists(Embedding.objects.filter(rollout=rollout, embedder=OuterRef("pk")))
    return sorted(rows.annotate(knows=knows), key=lambda embedder: not embedder.knows)  # type: ignore[attr-defined]


def find_similar(team: Team, rollout: Rollout, embedder: Embedder, count: int = NEAREST) -> SimilarRollouts | None:
    """None where the rollout has no vector by the embedder. Steps that a resumed attempt replayed are left out."""
    own = Embedding.objects.of(team).filter(embedder=embedder, rollout=rollout).values_list("rollout_id", "vector").first()
    if own is None:
        return None
    stored = Embedding.objects.of(team).filter(embedder=embedder, rollout__superseded=False).exclude(rollout=rollout)
    most = min(MOST_COMPARED, MOST_BYTES // max(embedder.dimension * 2, 1))
    rows = stored.order_by("-rollout_id").values_list("rollout_id", "vector")[:most]
    ids, vectors = unpack_vectors(embedder, [own, *rows.iterator(chunk_size=2000)])
    if len(ids) < 2 or ids[0] != rollout.pk:
        return SimilarRollouts([], 0, 0, False)
    centred = embedder.kind == Source.POLICY and len(ids) > 2
    compared = centre_vectors(vectors) if centred else vectors
    scores = compared[1:] @ compared[0]
    nearest = np.argsort(-scores, kind="stable")[:count]
    found = [(ids[1:][place], float(np.clip(scores[place], -1, 1))) for place in nearest]
    return SimilarRollouts(describe_neighbours(team, rollout, found), len(ids) - 1, stored.count() if len(ids) > most else len(ids) - 1, centred)


def describe_neighbours(team: Team, rollout: Rollout, found: Sequence[tuple[int, float]]) -> list[Neighbour]:
    """In their order, without what has been deleted meanwhile."""
    rows = Rollout.objects.of(team).select_related("run", "prompt").defer("run__spec", "prompt__messages").in_bulk([pk for pk, _ in found])
    return [describe_neighbour(rollout, rows[pk], similarity) for pk, similarity in found if pk in rows]


def describe_neighbour(rollout: Rollout, other: Rollout, similarity: float) -> Neighbour:
    mine, theirs = rollout.completion[:READ], other.completion[:READ]
    shared = count_common_prefix(mine, theirs)
    same = rollout.completion == other.completion
    return Neighbour(other, similarity, same, shared, theirs[max(0, shared - CONTEXT) : shared], theirs[shared : shared + CONTEXT])
