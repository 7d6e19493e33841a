"""The win rate: the arithmetic against worked examples, what counts as a vote, and the panel."""

import numpy as np
import pytest
from django.test import Client

from lab.data.loop import chores
from lab.data.loop.models import Match
from lab.data.loop.win_rate import BOOTSTRAP, WILSON, MatchVote, WinRate, bootstrap_interval, child_places, estimate_win_rate, tally_match
from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Queue
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.hostile import PAYLOADS
from tests.lab.loop.making import finished_run, heldout, judge

PROMPTS = 24


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    before = [f"before {number}" for number in range(PROMPTS)]
    return finished_run(team, owner, *heldout(0, before), *heldout(100, [*before[:4], *(f"after {number}" for number in range(4, PROMPTS))]))


@pytest.fixture
def match(run: Run, owner: User) -> Match:
    made = Match.objects.create(team=run.team, child=run, created_by=owner, overlap=2)
    chores.run_loop_chores()
    made.refresh_from_db()
    return made


def vote(match: Match, user: User, results: str) -> list[Judgement]:
    """``w``, ``l``, ``t``, ``b`` (both bad), ``s`` (skip) of the child for the items in order."""
    items = list(match.queue.items.order_by("place"))  # type: ignore[union-attr]
    places = child_places(match, items)
    return [judge(item, user, word(result, places[item.pk])) for item, result in zip(items, results, strict=False) if result != "."]


def word(result: str, place: int) -> str:
    return {"w": "ab"[place], "l": "ba"[place], "t": "tie", "b": "bad", "s": "skip"}[result]


def panel(client: Client, run: Run) -> str:
    response = client.get(f"/runs/{run.pk}/wins/")
    assert response.status_code == 200
    return response.content.decode()


def test_wilsons_interval_of_plain_votes_is_the_published_one() -> None:
    votes = [MatchVote(item, 1, float(item < 15)) for item in range(20)]
    found = estimate_win_rate(votes)
    assert found is not None
    assert found.method == WILSON
    assert (found.value, round(found.low, 4), round(found.high, 4)) == (0.75, 0.5313, 0.8881)  # as statsmodels and Newcombe (1998) give it


def test_ties_count_half_and_are_resampled_by_prompt() -> None:
    votes = [MatchVote(item, 1, score) for item, score in enumerate([1.0] * 10 + [0.5] * 4 + [0.0] * 6)]
    found = estimate_win_rate(votes)
    assert found is not None
    assert (found.value, found.method) == (0.6, BOOTSTRAP)
    spread = 1.96 * np.std([1.0] * 10 + [0.5] * 4 + [0.0] * 6) / np.sqrt(20)
    assert abs((found.high - found.low) / 2 - spread) < 0.03  # near the normal approximation


def test_votes_of_a_prompt_hang_together() -> None:
    once = [MatchVote(item, 1, float(item % 3 > 0)) for item in range(30)]
    thrice = [MatchVote(one.item, user, one.score) for one in once for user in range(3)]
    one, three = estimate_win_rate(once), estimate_win_rate(thrice)
    assert one is not None
    assert three is not None
    assert one.value == three.value
    assert abs((three.high - three.low) - (one.high - one.low)) < 0.03  # three times the votes say nothing new


def test_one_voice_is_not_taken_for_certainty() -> None:
    ties = estimate_win_rate([MatchVote(item, 1, 0.5) for item in range(12)])
    assert ties is not None
    assert ties.low < 0.4 < 0.6 < ties.high
    wins = estimate_win_rate([MatchVote(item, user, 1.0) for item in range(12) for user in range(2)])
    assert wins is not None
    assert (wins.high, round(wins.low, 3)) == (1.0, 0.758)  # twelve prompts, not 24 votes
    assert estimate_win_rate([]) is None


def test_the_bootstrap_covers() -> None:
    """Nineteen in twenty intervals hold the truth; 300 of them, of 40 prompts with ties, so 0.9 leaves room for chance."""
    draw, held = np.random.default_rng(3), 0
    for _ in range(300):
        sums = draw.choice([0.0, 0.5, 1.0], size=40, p=[0.3, 0.2, 0.5])
        low, high = bootstrap_interval(sums, np.ones(40))
        held += low <= 0.6 <= high
    assert held / 300 > 0.9


def test_same_texts_as_ties_pull_the_figure_to_one_half() -> None:
    found = WinRate(0.8, 0.7, 0.9, WILSON).with_ties(0.5)
    assert (found.value, found.low, found.high) == pytest.approx((0.65, 0.6, 0.7))


def test_what_counts(match: Match, owner: User, teammate: User) -> None:
    vote(match, owner, "wwwwwwltbs")
    vote(match, teammate, "wwwwlllt")
    counted = tally_match(match)
    assert (counted.record.wins, counted.record.ties, counted.record.losses) == (10, 3, 4)
    assert (counted.rate.value if counted.rate else None) == pytest.approx((10 + 1.5) / 17)
    assert counted.rate is not None
    assert counted.rate.method == BOOTSTRAP
    assert (counted.prompts, counted.shared, counted.queued, counted.labelled) == (9, 8, 20, 8)
    assert counted.agreement == pytest.approx(6 / 8)
    assert counted.by_labeller[teammate.pk].rate == pytest.approx(4.5 / 8)


def test_an_adjudicated_prompt_is_one_vote(match: Match, owner: User, teammate: User) -> None:
    vote(match, owner, "w")
    vote(match, teammate, "l")
    item = match.queue.items.order_by("place").first()  # type: ignore[union-attr]
    assert item is not None
    final = {"verdict": word("w", child_places(match, [item])[item.pk])}
    Item.across_teams.filter(pk=item.pk).update(state=ItemState.SETTLED, final=final)
    counted = tally_match(match)
    assert (counted.record.wins, counted.record.votes, counted.adjudicated, counted.shared) == (1, 1, 1, 0)


def test_withdrawn_returned_and_unreviewed_votes_do_not_count(match: Match, owner: User) -> None:
    made = vote(match, owner, "wwww")
    for judgement, state in zip(made, JudgementState, strict=True):
        Judgement.across_teams.filter(pk=judgement.pk).update(state=state)
    assert tally_match(match).record.votes == 2
    Queue.across_teams.update(reviewed=True)
    match.refresh_from_db()
    assert tally_match(match).record.votes == 1


def test_the_panel_says_too_few_then_the_rate_with_its_interval(as_owner: Client, run: Run, match: Match, owner: User) -> None:
    assert "No labels yet" in panel(as_owner, run)
    vote(match, owner, "wwww")
    text = panel(as_owner, run)
    assert "4 votes: not enough votes" in text
    assert "win-line" not in text
    assert "every 20s" in text
    vote(match, make_member("two@example.org", run.team), "wwwwwwwwwwwwwwwwww")
    text = panel(as_owner, run)
    assert "100\u202f%</strong>" in text
    assert "People prefer this run" in text
    assert "4 of 24 held-out prompts were answered identically" in text
    assert "4 of 20 labelled" in text
    assert f"/label/{match.queue_id}/work/" in text


def test_the_panel_while_the_run_trains_and_when_it_stops(as_owner: Client, run: Run) -> None:
    Match.objects.create(team=run.team, child=run)
    for status, words in ((Status.RUNNING, "Starts automatically when this run has finished"), (Status.FAILED, "this run is failed")):
        Run.across_teams.filter(pk=run.pk).update(status=status)
        assert words in panel(as_owner, run)


def test_a_run_without_a_match_offers_one_to_leads_only(as_owner: Client, client: Client, run: Run, team: Team) -> None:
    assert "Create blind A/B" in panel(as_owner, run)
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert panel(client, run).strip() == ""


def test_another_teams_run_has_no_panel(as_stranger: Client, run: Run) -> None:
    assert as_stranger.get(f"/runs/{run.pk}/wins/").status_code == 404


def test_hostile_names_are_text(as_owner: Client, team: Team, owner: User, run: Run) -> None:
    markup = [text for text in PAYLOADS if "<" in text or "&" in text][:10]
    for text in markup:
        other = finished_run(team, owner, *heldout(0, ["a"]), *heldout(100, ["b"]))
        Run.across_teams.filter(pk=other.pk).update(name=text[:100])
        Match.objects.create(team=team, child=run, against=other)
    page = panel(as_owner, run)
    assert page.count('class="win"') == len(markup)
    assert not any(text[:100] in page for text in markup)
