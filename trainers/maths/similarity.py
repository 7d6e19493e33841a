"""How alike texts are, without a model: hashed character n-grams and their cosine. The same on every machine."""

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

START, END = "\x02", "\x03"  # so that an empty text has an n-gram too, and equals another empty one


def ngram_vectors(texts: Sequence[str], length: int = 3, size: int = 512) -> Tensor:
    """(B, size) float32, of norm 1: counts of the texts' character n-grams, hashed into ``size`` places."""
    vectors = torch.zeros(len(texts), size)
    for row, text in enumerate(texts):
        marked = f"{START}{text}{END}"
        grams = [marked[i : i + length] for i in range(max(1, len(marked) - length + 1))]
        places = torch.tensor([zlib.crc32(gram.encode("utf-8", "replace")) % size for gram in grams])
        vectors[row].index_add_(0, places, torch.ones(len(places)))
    return torch.nn.functional.normalize(vectors, dim=1)


def compute_cosines(vectors: Tensor) -> Tensor:
    """(B, D) of norm 1 -> (B, B), clipped to [0, 1]."""
    return (vectors @ vectors.T).clamp(0.0, 1.0)


def compute_text_similarity(one: str, other: str, length: int = 3) -> float:
    """Cosine of two texts' n-grams: 1 for equal texts, 0 for texts without a common one."""
    return float(compute_cosines(ngram_vectors([one, other], length))[0, 1])
