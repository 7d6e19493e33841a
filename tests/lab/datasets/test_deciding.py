"""From votes to rows, for every pattern of votes: a row is preferred by more than oppose it, and what gives no row says why."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from lab.data.datasets.decisions import RowCandidate, RowExclusion, decide_candidates
from lab.data.datasets.rules import DatasetRule
from lab.data.datasets.votes import ItemVote, JudgedItem
from lab.labelling.labels.implied_preferences import derive_preferences

PAIR_VOTES = st.lists(st.sampled_from(["a", "b", "tie", "bad"]), min_size=1, max_size=7)
TIERS = st.lists(st.integers(0, 2), min_size=4, max_size=4)


def judged(
    verdicts: list[tuple[str, list[list[int]] | None]], rollouts: tuple[int, ...], kind: str, final: dict[str, object] | None = None
) -> JudgedItem:
    votes = [ItemVote(n, n, said, frozenset(derive_preferences(said, tiers, rollouts)), seconds=3.0) for n, (said, tiers) in enumerate(verdicts)]
    return JudgedItem(1, 1, 1, rollouts, kind, False, tuple(votes), final)


def split(found: JudgedItem, rule: DatasetRule) -> tuple[list[RowCandidate], list[str]]:
    every = list(decide_candidates(found, rule, {}))
    return [one for one in every if isinstance(one, RowCandidate)], [str(one) for one in every if isinstance(one, RowExclusion)]


@given(PAIR_VOTES)
def test_of_two_answers_the_one_with_more_votes_is_chosen(verdicts: list[str]) -> None:
    rows, reasons = split(judged([(said, None) for said in verdicts], (10, 20), "pair"), DatasetRule())
    first, second = verdicts.count("a"), verdicts.count("b")
    if first == second:
        assert not rows
        assert reasons == ["pairs with split votes" if first else "ties"]
        return
    [row] = rows
    assert (row.chosen, row.rejected) == ((10, 20) if first > second else (20, 10))
    assert row.votes == {"for": max(first, second), "against": min(first, second), "tie": len(verdicts) - first - second}
    assert row.agreement == round(max(first, second) / len(verdicts), 6)
    [strict] = [*split(judged([(said, None) for said in verdicts], (10, 20), "pair"), DatasetRule(min_agreement=1.0))[0], None][:1]
    assert (strict is not None) == (max(first, second) == len(verdicts))


@given(st.lists(TIERS, min_size=1, max_size=3))
def test_of_rankings_no_pair_is_made_inside_a_tie_or_against_the_votes(rankings: list[list[int]]) -> None:
    rollouts = (10, 20, 30, 40)
    tiers = [[places for level in range(3) if (places := [place for place in range(4) if ranks[place] == level])] for ranks in rankings]
    rows, reasons = split(judged([("ranked", own) for own in tiers], rollouts, "ranking"), DatasetRule())
    made = {(row.chosen, row.rejected) for row in rows}
    for (one, first), (other, second) in combinations(enumerate(rollouts), 2):
        balance = sum((ranks[one] < ranks[other]) - (ranks[one] > ranks[other]) for ranks in rankings)
        assert ((first, second) in made) == (balance > 0)
        assert ((second, first) in made) == (balance < 0)
    assert len(rows) + len(reasons) == 6
    kto = {
        row.chosen or row.rejected: row.label
        for row in split(judged([("ranked", own) for own in tiers], rollouts, "ranking"), DatasetRule(form="kto"))[0]
    }
    for rollout, good in kto.items():
        wins, losses = sum(rollout == pair[0] for pair in made), sum(rollout == pair[1] for pair in made)
        assert good == (wins > losses)


@given(PAIR_VOTES, st.sampled_from(["a", "b", "tie", "bad"]))
def test_what_somebody_decided_stands_whatever_was_voted(verdicts: list[str], decided: str) -> None:
    found = judged([(said, None) for said in verdicts], (10, 20), "pair", {"verdict": decided, "tiers": None, "strength": 2, "correction": ""})
    rows, reasons = split(found, DatasetRule(min_agreement=1.0, min_labels=99))
    assert [(row.chosen, row.rejected) for row in rows] == {"a": [(10, 20)], "b": [(20, 10)]}.get(decided, [])
    assert reasons == ([] if rows else ["ties"])
