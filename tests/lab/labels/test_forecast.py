"""How many more votes until an interval is narrow."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from lab.labelling.labels.forecast import WilsonShare, forecast_needed_votes, votes_for


@pytest.mark.parametrize(("hits", "count"), [(0, 1), (1, 1), (3, 7), (45, 60), (0, 30), (999, 1000)])
def test_wilsons_interval_is_the_librarys(hits: int, count: int) -> None:
    assert WilsonShare(hits, count).interval == pytest.approx(proportion_confint(hits, count, method="wilson"), abs=1e-12)


def width(share: float, count: int) -> float:
    """Of the library's interval for a share that need not be whole votes."""
    low, high = proportion_confint(share * count, count, method="wilson")
    return float(high - low)


@pytest.mark.feature(96)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.83, 1.0])
@pytest.mark.parametrize("wanted", [0.4, 0.2, 0.1, 0.03])
def test_the_votes_are_the_fewest_that_do(share: float, wanted: float) -> None:
    votes = votes_for(wanted, share)
    assert width(share, votes) <= wanted + 1e-9
    assert votes == 1 or width(share, votes - 1) > wanted


def test_a_queue_that_is_labelled_as_long_as_was_foretold_is_as_narrow_as_was_foretold() -> None:
    """Simulated: after the foretold votes the width is what was wanted, but for the chance in the share itself."""
    rng = np.random.default_rng(0)
    reached = []
    for _ in range(300):
        first = int(rng.binomial(60, 0.8))
        found = forecast_needed_votes(WilsonShare(first, 60), labels=60, width=0.1)
        later = first + int(rng.binomial(found.votes, 0.8))
        reached.append(WilsonShare(later, 60 + found.votes).width)
    assert np.mean(reached) == pytest.approx(0.1, abs=0.01)
    assert np.quantile(reached, 0.9) < 0.125


def test_labels_that_take_no_side_are_counted_in() -> None:
    plain, half = (forecast_needed_votes(WilsonShare(40, 50), labels, 0.1) for labels in (50, 100))
    assert plain.labels == plain.votes
    assert half.labels == 2 * half.votes


def test_without_votes_the_most_is_foretold_and_an_interval_that_is_narrow_needs_none() -> None:
    assert forecast_needed_votes(WilsonShare(0, 0), 0, 0.1).votes == votes_for(0.1, 0.5)
    assert forecast_needed_votes(WilsonShare(900, 1000), 1000, 0.1).reached
