"""What people said of a rollout, where it is read: counted in pairs, by name for leads only, and of items somebody can still judge only one's own."""

import re
import uuid
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from lab.labelling.labels.implied_preferences import derive_preferences
from lab.labelling.labels.models import Item, ItemState, Judgement, JudgementState, Kind, Verdict
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.labelling.labels.rollout_labels import PreferenceTally, tally_answer
from lab.rollouts.browse.conditions import filter_matching_rollouts
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started, store


@pytest.fixture
def group(team: Team) -> list[Rollout]:
    run = make_run(team)
    store(run, started(), *(rollout(1, 0, sample, reward=float(sample)) for sample in range(5)))
    return list(Rollout.objects.filter(run=run).order_by("sample"))


def item_of(team: Team, kind: Kind, rollouts: list[Rollout], state: ItemState = ItemState.OPEN, **fields: Any) -> Item:
    queue = make_queue(team, None, name="q", kind=kind, items=[NewItem(rollouts[0].prompt_id, tuple(one.pk for one in rollouts))])
    Item.objects.filter(queue=queue).update(state=state, **fields)
    return queue.items.get()


def say(item: Item, user: User, verdict: Verdict, **fields: Any) -> Judgement:
    values = {"key": uuid.uuid4(), "order": list(range(len(item.rollouts))), "seconds": 1.0, **fields}
    return Judgement.objects.create(item=item, queue=item.queue, user=user, verdict=verdict, **values)


def block(client: Client, one: Rollout) -> str:
    response = client.get(f"/rollouts/{one.pk}/labels/")
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


def of_group(client: Client, one: Rollout) -> str:
    response = client.get(f"/runs/{one.run_id}/groups/train/1/0/labels/")
    assert response.status_code == 200
    return " ".join(response.content.decode().split())


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (0, PreferenceTally(chosen=3, tied=1)),
        (1, PreferenceTally(chosen=3, tied=1)),
        (2, PreferenceTally(chosen=2, rejected=2)),
        (3, PreferenceTally(rejected=3, tied=1)),
        (4, PreferenceTally(rejected=3, tied=1)),
    ],
)
def test_a_ranking_counts_as_its_pairs(place: int, expected: PreferenceTally) -> None:
    """{A=B}>C>{D=E}: 8 pairs, so that 8 are chosen and 8 rejected over all members, and none inside a tie."""
    assert tally_answer([10, 11, 12, 13, 14], "ranked", [[0, 1], [2], [3, 4]], 10 + place) == expected


@given(st.lists(st.integers(0, 4), min_size=2, max_size=26))
def test_what_is_counted_are_the_pairs_that_are_written(levels: list[int]) -> None:
    """``levels``: the tier of each member."""
    rollouts = list(range(100, 100 + len(levels)))
    tiers = [[place for place, level in enumerate(levels) if level == one] for one in sorted(set(levels))]
    counted = [tally_answer(rollouts, "ranked", tiers, pk) for pk in rollouts]
    pairs = derive_preferences("ranked", tiers, rollouts)
    assert [one.chosen for one in counted] == [sum(better == pk for better, _ in pairs) for pk in rollouts]
    assert [one.rejected for one in counted] == [sum(worse == pk for _, worse in pairs) for pk in rollouts]
    assert all(one.chosen + one.rejected + one.tied == len(rollouts) - 1 for one in counted)


@pytest.mark.parametrize(
    ("verdict", "first", "second"),
    [
        ("a", PreferenceTally(chosen=1), PreferenceTally(rejected=1)),
        ("b", PreferenceTally(rejected=1), PreferenceTally(chosen=1)),
        ("tie", PreferenceTally(tied=1), PreferenceTally(tied=1)),
        ("bad", PreferenceTally(bad=1), PreferenceTally(bad=1)),
        ("skip", PreferenceTally(), PreferenceTally()),
    ],
)
def test_a_pair_counts_for_both_of_its_answers(verdict: str, first: PreferenceTally, second: PreferenceTally) -> None:
    assert [tally_answer([7, 9], verdict, None, pk) for pk in (7, 9)] == [first, second]


def test_a_lead_sees_what_was_said_and_by_whom(as_owner: Client, team: Team, group: list[Rollout]) -> None:
    annotator = make_member("ann@example.org", team, Role.ANNOTATOR)
    item = item_of(team, Kind.PAIR, [group[0], group[3]])
    say(item, annotator, Verdict.B, strength=2, rationale="shorter")
    skipped = item_of(team, Kind.PAIR, [group[3], group[4]])
    say(skipped, annotator, Verdict.SKIP)
    withdrawn = item_of(team, Kind.SINGLE, [group[3]])
    say(withdrawn, annotator, Verdict.BAD, state=JudgementState.WITHDRAWN)
    found = block(as_owner, group[3])
    assert "chosen <strong>1</strong>" in found
    assert "1 label<" in found
    assert f'chosen over <a href="/rollouts/{group[0].pk}/">sample 0</a>' in found
    assert "ann@example.org" in found
    assert "strength 2, with a rationale" in found
    assert f'href="/label/items/{item.pk}/"' in found
    assert f'rejected for <a href="/rollouts/{group[3].pk}/">' in block(as_owner, group[0])
    assert "No labels yet" in block(as_owner, group[1])


def test_annotators_read_no_rollouts_and_viewers_no_names(client: Client, team: Team, owner: User, group: list[Rollout]) -> None:
    item = item_of(team, Kind.PAIR, group[:2])
    say(item, owner, Verdict.A)
    client.force_login(make_member("ann@example.org", team, Role.ANNOTATOR))
    assert client.get(f"/rollouts/{group[0].pk}/labels/").status_code == 403
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert "chosen" in block(client, group[0])
    for found in (block(client, group[0]), of_group(client, group[0])):
        assert str(owner) not in found
        assert owner.email not in found


def test_a_group_counts_its_members_and_says_how_often_the_reward_agrees(as_owner: Client, team: Team, owner: User, group: list[Rollout]) -> None:
    """Rewards rise with the sample; the ranking puts 4 on top, then 0 and 1 tied, then 2 and 3: 8 pairs, of which 4 follow the reward."""
    item = item_of(team, Kind.RANKING, group)
    say(item, owner, Verdict.RANKED, tiers=[[4], [0, 1], [2, 3]])
    found = of_group(as_owner, group[0])
    assert "1 label on 1 item of <bdi>q</bdi>." in found
    assert "agree on <strong>4 of 8</strong> preferences" in found
    row = found[found.index("sample 0</a>") :]
    assert row.startswith('sample 0</a></th><td class="num">0</td><td class="num">2</td><td class="num">1</td><td class="num">1</td>')
    assert "place 1 of 3 in a ranking of 5</span>" in block(as_owner, group[4])


def test_a_decided_conflict_says_so(as_owner: Client, team: Team, owner: User, group: list[Rollout]) -> None:
    item = item_of(team, Kind.PAIR, group[:2], ItemState.SETTLED, final={"verdict": "b"}, final_by=owner)
    say(item, owner, Verdict.A)
    assert "decided</span> rejected for" in block(as_owner, group[0])


def test_names_of_people_and_queues_are_text(as_owner: Client, team: Team, group: list[Rollout], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.labelling.labels.rollout_labels.LISTED", len(PAYLOADS))
    for payload in PAYLOADS:
        item = item_of(team, Kind.PAIR, group[:2])
        item.queue.name = stored(payload)[:100]
        item.queue.save()
        say(item, make_person(team, payload), Verdict.A)
    found = block(as_owner, group[0])
    assert "window.hostileRan" in found
    for markup in ("<script", "<img", "<svg", "<iframe", "<b ", '<a href="javascript', '" onmouseover'):
        assert markup not in found


def make_person(team: Team, payload: str) -> User:
    made = make_member(f"{uuid.uuid4().hex}@example.org", team, Role.ANNOTATOR)
    made.first_name = stored(payload)[:150]
    made.save()
    return made


def test_the_number_of_queries_does_not_grow_with_the_labels(as_owner: Client, team: Team, owner: User, teammate: User, group: list[Rollout]) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            block(as_owner, group[0])
            of_group(as_owner, group[0])
        return len(queries)

    say(item_of(team, Kind.PAIR, group[:2]), owner, Verdict.A)
    block(as_owner, group[0])  # the first request of a session is entered in the person's list of sessions
    few = count()
    for other in group[1:]:
        item = item_of(team, Kind.PAIR, [other, group[0]])
        say(item, owner, Verdict.A)
        say(item, teammate, Verdict.B)
    assert count() == few


def test_the_browser_finds_what_is_labelled(as_owner: Client, team: Team, stranger: User, group: list[Rollout]) -> None:
    def found(value: str) -> list[int]:
        rows = filter_matching_rollouts(team, Selection.read(QueryDict(f"f=labelled:is:{value}")))
        return sorted(rows.values_list("sample", flat=True))

    assert (found("yes"), found("no")) == ([], [0, 1, 2, 3, 4])
    item_of(team, Kind.PAIR, [group[1], group[3]], labels=1)
    item_of(team, Kind.PAIR, [group[0], group[4]])  # nobody has said anything
    item_of(stranger.memberships.get().team, Kind.PAIR, [group[0], group[2]], labels=1)
    assert (found("yes"), found("no")) == ([1, 3], [0, 2, 4])
    page = as_owner.get("/rollouts/?f=labelled:is:yes").content.decode()
    assert f"/rollouts/{group[1].pk}/" in page
    assert f"/rollouts/{group[0].pk}/" not in page


def test_the_browser_has_a_column_of_labels(as_owner: Client, team: Team, owner: User, stranger: User, group: list[Rollout]) -> None:
    def labels() -> dict[int, str]:
        """By sample, newest first in the page."""
        body = as_owner.get("/rollouts/?cols=labels").content.decode()
        cells = re.findall(r'data-label="Labels">(.*?)</td>', body)
        return dict(zip(reversed(range(5)), [" ".join(re.sub("<[^>]+>", " ", cell).split()) for cell in cells], strict=True))

    assert labels() == dict.fromkeys(range(5), "–")
    say(item_of(team, Kind.PAIR, [group[1], group[3]], labels=1), owner, Verdict.A)
    say(item_of(team, Kind.RANKING, group[:3], labels=1), owner, Verdict.RANKED, tiers=[[2], [0, 1]])
    say(item_of(stranger.memberships.get().team, Kind.PAIR, [group[0], group[4]], labels=1), stranger, Verdict.A)
    assert labels() == {0: "▼ 1 = 1", 1: "▲ 1 ▼ 1 = 1", 2: "▲ 2", 3: "▼ 1", 4: "–"}
    chosen = as_owner.post("/rollouts/columns/", {"offered": [], "column": ["step", "completion"]}).headers["Location"]
    assert 'data-label="Labels"' not in as_owner.get(chosen).content.decode()


def test_another_team_finds_nothing(as_stranger: Client, group: list[Rollout]) -> None:
    assert as_stranger.get(f"/rollouts/{group[0].pk}/labels/").status_code == 404
    assert as_stranger.get(f"/runs/{group[0].run_id}/groups/train/1/0/labels/").status_code == 404


@pytest.mark.parametrize("where", ["nosuch/1/0", "train/99999999999/0", "train/7/0"])
def test_a_group_that_is_not_there_is_not_found(where: str, as_owner: Client, group: list[Rollout]) -> None:
    assert as_owner.get(f"/runs/{group[0].run_id}/groups/{where}/labels/").status_code == 404
