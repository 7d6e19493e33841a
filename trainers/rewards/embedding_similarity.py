"""How close the answer's meaning is to the reference's, by a sentence encoder on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.contract.encoder_folder import inspect_encoder_folder
from trainers.contract.hyperparameters import param
from trainers.contract.problems import Problem
from trainers.rewards.answers import AnswerPlace, find_answer, find_reference
from trainers.rewards.base import RewardFunction
from trainers.rewards.model_batches import load_once, score_together

if TYPE_CHECKING:
    from trainers.policies.embedding import Embedder
    from trainers.rewards.scores import Rows, Score
    from trainers.tasks.base import Example


class EmbeddingSimilarityParameters(AnswerPlace):
    folder: str = param(..., "Folder of a sentence encoder with mean pooling.", title="Encoder", min_length=1)
    floor: float = param(0.0, "A cosine up to this scores 0; from there to 1 it is stretched.", title="Floor", ge=-1, lt=1)


class EmbeddingSimilarity(RewardFunction):
    name = "embedding-similarity"
    title = "Embedding similarity"
    summary = "Cosine of the sentence encoder's vectors of answer and reference, 0 to 1. An empty answer scores 0."
    Parameters = EmbeddingSimilarityParameters
    light = False

    @classmethod
    def find_missing(cls, parameters: Any) -> list[Problem]:
        path = Path(parameters.folder)
        if not path.is_dir():
            return [Problem("folder", parameters.folder, "is not a folder on this machine", "give the folder of a sentence encoder")]
        return inspect_encoder_folder(path, "folder").problems

    def score_batch(self, rows: Rows) -> list[Score]:
        embedder, chosen = self.load(), self.parameters

        def read(text: str, example: Example) -> tuple[str, str]:
            return find_reference(example, chosen), find_answer(text, example, chosen) or ""

        def score(pairs: Sequence[tuple[str, str]]) -> list[float]:
            cosines = compute_cosines(embedder, pairs)
            return [max(0.0, (cosine - chosen.floor) / (1 - chosen.floor)) if pair[1] else 0.0 for cosine, pair in zip(cosines, pairs, strict=True)]

        return score_together(rows, read, score)

    def load(self) -> Embedder:
        from trainers.policies.embedding import load_embedder

        folder, device = Path(self.parameters.folder), self.context.device
        return load_once(self.context, f"the encoder in {folder}", lambda: load_embedder("encoder", folder, device))


def compute_cosines(embedder: Embedder, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Cosine of each pair's vectors, at most 1; each different text is encoded once."""
    from trainers.policies.embedding import EmbeddedItem, embed_rows

    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    vectors = embed_rows(embedder, [embedder.tokenize(EmbeddedItem([], text)) for text in texts])  # (N, D), of length 1
    place = {text: number for number, text in enumerate(texts)}
    return [min(1.0, float(vectors[place[first]] @ vectors[place[second]])) for first, second in pairs]
