"""Two learning curves compared after as many tokens, because a method that writes less or more gets further or less far on the same budget."""

import numpy

Curve = list[tuple[float, float]]  # (tokens so far, value), tokens rising


def values_at_equal_tokens(own: Curve, parent: Curve) -> tuple[float, float]:
    """Both curves where the one with fewer tokens ends, on straight lines between their points."""
    tokens = min(own[-1][0], parent[-1][0])
    return value_at(own, tokens), value_at(parent, tokens)


def value_at(curve: Curve, tokens: float) -> float:
    """A curve's value after ``tokens``; its first before it begins, its last after it ends."""
    places, values = zip(*curve, strict=True)
    return float(numpy.interp(tokens, places, values))
