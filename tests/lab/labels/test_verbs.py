"""What the labelling page asks of the server: what it gets, and what it is told when it sends something that cannot be taken."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.models import Claim, Item, ItemState, Judgement, Kind, Preference, Queue, QueueStatus, Rationale
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.labelling.labels.settlement import accept_judgement, send_back, withdraw_judgement
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.teams.accounts.models import Role, Team, User
from tests.conftest import make_member
from tests.hostile import PAYLOADS
from tests.lab.labels.queues import group_queue, judge, pair_queue
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message, Turn


@pytest.fixture
def as_ann(ann: User) -> Client:
    client = Client()
    client.force_login(ann)
    return client


def ask(client: Client, queue: Queue, verb: str, status: int = 200, **data: Any) -> dict[str, Any]:
    response = client.post(f"/label/{queue.pk}/{verb}/", json.dumps(data), content_type="application/json")
    assert response.status_code == status, response.content[:500]
    return dict(response.json())


def next_one(client: Client, queue: Queue) -> dict[str, Any]:
    return dict(ask(client, queue, "next", hold=1)["claims"][0])


def sent(client: Client, queue: Queue, held: dict[str, Any], status: int = 200, **answer: Any) -> dict[str, Any]:
    return ask(client, queue, "submit", status, token=held["token"], key=str(uuid.uuid4()), seconds=2, answer=answer)


def fields(reply: dict[str, Any]) -> set[str]:
    assert all(problem["message"] and set(problem) == {"field", "message", "fix"} for problem in reply["problems"])
    return {problem["field"] for problem in reply["problems"]}


def test_a_pair_goes_out_and_comes_back(as_ann: Client, team: Team, ann: User) -> None:
    queue = pair_queue(team, items=3)
    reply = ask(as_ann, queue, "next")
    assert [len(one["answers"]) for one in reply["claims"]] == [2, 2]
    assert reply["progress"] == {"done": 0, "total": 3, "conflicts": 0, "mine": 0}
    held = reply["claims"][0]
    stored = Claim.across_teams.get(token=held["token"])
    assert [answer["text"] for answer in held["answers"]] == [
        Rollout.across_teams.get(pk=stored.item.rollouts[place]).completion for place in stored.order
    ]
    assert held["prompt"] == [["user", "What is 1 + 0?"]]
    assert 890 < held["seconds_left"] <= 900
    done = sent(as_ann, queue, held, choice="2", strength=3, rationale="shorter")
    assert (done["progress"]["done"], done["gold"]) == (1, None)
    said = Judgement.across_teams.get(pk=done["judgement"])
    assert (said.user, said.verdict, said.rationale) == (ann, "ab"[stored.order[1]], "shorter")


@pytest.mark.feature(59)
def test_a_blind_queue_says_nothing_of_where_an_answer_comes_from(as_ann: Client, team: Team) -> None:
    blind = pair_queue(team)
    held = next_one(as_ann, blind)
    assert set(held) == {"token", "item", "seconds_left", "draft", "prompt", "reference", "answers"}
    assert held["reference"] == ""
    assert all(set(answer) == {"text", "turns", "tokens"} for answer in held["answers"])
    open_queue = pair_queue(team, blind=False)
    held = next_one(as_ann, open_queue)
    run = Rollout.across_teams.get(pk=Claim.across_teams.get(token=held["token"]).item.rollouts[0]).run
    assert held["reference"] == "1"
    assert {answer["about"]["run"] for answer in held["answers"]} == {run.number}
    assert set(held["answers"][0]["about"]) == {"run", "step", "reward", "url"}


def test_the_known_answer_stays_here_until_the_person_has_answered(as_ann: Client, team: Team) -> None:
    queue = pair_queue(team, items=2)
    queue.items.update(gold={"verdict": "a"})
    reply = ask(as_ann, queue, "next")
    assert "gold" not in json.dumps(reply)
    for held, right in zip(reply["claims"], (True, False), strict=True):
        order = Claim.across_teams.get(token=held["token"]).order
        done = sent(as_ann, queue, held, choice=str(order.index(0 if right else 1) + 1))
        assert done["gold"]["right"] is right
        assert ("the first is better" if order[0] == 0 else "the second is better") in done["gold"]["message"] or right


def test_hostile_texts_come_as_they_are_stored(as_ann: Client, team: Team) -> None:
    run = make_run(team)
    pairs = [(PAYLOADS[at], PAYLOADS[(at + 1) % len(PAYLOADS)]) for at in range(len(PAYLOADS))]
    clean = [[text.encode("utf-8", "replace").decode().replace("\0", "\u2400") for text in pair] for pair in pairs]
    events = [
        rollout(1, group, sample, prompt=[Message("user", text)], completion=text)
        for group, pair in enumerate(clean)
        for sample, text in enumerate(pair)
    ]
    store(run, started(), *events)
    rows = Rollout.objects.filter(run=run).order_by("group", "sample")
    items = [NewItem(rows[at].prompt_id, (rows[at].pk, rows[at + 1].pk)) for at in range(0, len(rows), 2)]
    queue = make_queue(team, None, name="q", kind=Kind.PAIR, items=items)
    for text in (text[:9000] for text in PAYLOADS):
        held = next_one(as_ann, queue)
        ask(as_ann, queue, "draft", token=held["token"], draft={"rationale": text, text: [text]})
        done = sent(as_ann, queue, held, choice="tie", rationale=text)
        kept = text.replace("\0", "\u2400").replace("\ud800", "\ufffd").replace("\r\n", "\n").replace("\r", "\n").strip()
        assert Judgement.across_teams.get(pk=done["judgement"]).rationale == kept


def test_turns_of_the_environment_are_told_apart(as_ann: Client, team: Team) -> None:
    run = make_run(team)
    packed = {
        "ids": pack_ids([1, 2, 3]),
        "lengths": pack_array([2, 3, 4], "H"),
        "logprobs": pack_array([0.0] * 3, "e"),
        "entropies": pack_array([0.0] * 3, "e"),
    }
    turns = [Turn("assistant", 0, 1), Turn("tool", 1, 2), Turn("assistant", 2, 3)]
    store(run, started(), *(rollout(1, 0, sample, completion="abCDEfghi", turns=turns, **packed) for sample in range(2)))
    rows = list(Rollout.objects.filter(run=run))
    queue = make_queue(team, None, name="q", kind=Kind.PAIR, items=[NewItem(rows[0].prompt_id, (rows[0].pk, rows[1].pk))])
    assert next_one(as_ann, queue)["answers"][0]["turns"] == [["assistant", "ab"], ["tool", "CDE"], ["assistant", "fghi"]]


def test_of_two_pairs_the_answer_that_earlier_labels_preferred_is_named(as_ann: Client, team: Team, ann: User, owner: User) -> None:
    clearer = group_queue(team, Kind.CLEARER, items=1, answers=4)
    item = clearer.items.get()
    a, b, c, d = item.rollouts

    def earlier(*pair: int, verdicts: str, **settings: Any) -> list[Judgement]:
        queue = make_queue(team, None, name="earlier", kind=Kind.PAIR, items=[NewItem(item.prompt_id, pair)], overlap=3, **settings)
        return [judge(queue, who, verdict) for who, verdict in zip((ann, owner, teammate), verdicts, strict=False)]

    def named() -> set[int]:
        held = next_one(as_ann, clearer)
        order = Claim.across_teams.get(token=held["token"]).order
        assert all(answer.get("preferred", True) is True for answer in held["answers"])
        return {item.rollouts[place] for place, answer in zip(order, held["answers"], strict=True) if "preferred" in answer}

    teammate = make_member("bob@example.org", team, Role.ANNOTATOR)
    assert named() == set()  # nobody has said anything
    first = earlier(a, b, verdicts="bba")
    assert named() == {b}
    withdraw_judgement(first[1], owner, "recalled")
    assert named() == set()  # as many on either side
    earlier(b, c, verdicts="aaa")
    assert named() == set()  # of two pairs, so it says nothing of either
    [said] = earlier(d, c, verdicts="a", reviewed=True)
    assert named() == set()  # nobody has accepted it yet
    accept_judgement(said, owner)
    assert named() == {d}
    Item.across_teams.filter(pk=said.item_id).update(state=ItemState.SETTLED, final={"verdict": "b"})
    assert named() == {c}  # whoever decided the item has the last word
    other = make_team_of_strangers(item, a, b)
    assert other.judgements.count() == 1
    assert named() == {c}


def make_team_of_strangers(item: Item, *pair: int) -> Queue:
    """Another team's queue cannot hold these rollouts; were it to, its votes would not count here."""
    team = Team.objects.create(name="Elsewhere", slug="elsewhere")
    queue = make_queue(team, None, name="elsewhere", kind=Kind.PAIR, items=[NewItem(item.prompt_id, pair)])
    said = Judgement(item=queue.items.get(), queue=queue, user=make_member("eve@example.org", team, Role.OWNER), key=uuid.uuid4(), verdict="a")
    said.order, said.seconds = [0, 1], 1.0
    said.save()
    Preference.objects.create(judgement=said, item=said.item, chosen=pair[0], rejected=pair[1])
    return queue


def test_answers_that_are_not_stored_yet_come_as_texts(as_ann: Client, team: Team) -> None:
    prompt = Prompt.objects.create(team=team, digest=b"1" * 16, messages=[["user", "q"]], text="q")
    queue = make_queue(team, None, name="q", kind=Kind.PAIR, items=[NewItem(prompt.pk, texts=("one", "two"))])
    held = next_one(as_ann, queue)
    assert sorted(answer["text"] for answer in held["answers"]) == ["one", "two"]
    sent(as_ann, queue, held, choice="1")
    assert (Judgement.across_teams.count(), Preference.across_teams.count()) == (1, 0)


def test_an_item_whose_answer_was_deleted_leaves_the_queue(as_ann: Client, team: Team) -> None:
    queue = pair_queue(team, items=3)
    gone = queue.items.order_by("place").first()
    assert gone is not None
    Rollout.across_teams.filter(pk=gone.rollouts[0]).delete()
    reply = ask(as_ann, queue, "next")
    assert len(reply["claims"]) == 2
    assert gone.pk not in {one["item"] for one in reply["claims"]}
    gone.refresh_from_db()
    assert (gone.state, reply["progress"]["total"]) == (ItemState.DROPPED, 2)


def single_queue(team: Team, **settings: Any) -> tuple[Queue, Rollout]:
    run = make_run(team)
    text = "First.\n\nThen.\n\nLast."
    tokens = [*"First.", "\n\n", *"Then.", "\n\n", *"Last."]
    count = len(tokens)
    packed = {"ids": pack_ids(list(range(1, count + 1))), "lengths": pack_array([len(one) for one in tokens], "H")}
    packed |= {"logprobs": pack_array([0.0] * count, "e"), "entropies": pack_array([0.0] * count, "e")}
    store(run, started(), rollout(1, 0, 0, completion=text, **packed))
    row = Rollout.objects.get(run=run)
    return make_queue(team, None, name="q", kind=Kind.SINGLE, items=[NewItem(row.prompt_id, (row.pk,))], **settings), row


def test_steps_and_spans_are_stored_with_their_text(as_ann: Client, team: Team) -> None:
    queue, _ = single_queue(team, steps=True, spans=True)
    held = next_one(as_ann, queue)
    [answer] = held["answers"]
    assert [step["text"] for step in answer["steps"]] == ["First.", "Then.", "Last."]
    assert "".join(unit[0] for unit in answer["units"]) == "First.\n\nThen.\n\nLast."
    steps = [
        {"start": step["start"], "end": step["end"], "mark": mark} for step, mark in zip(answer["steps"], ("good", "bad", "neutral"), strict=True)
    ]
    done = sent(as_ann, queue, held, choice="bad", steps=steps[::-1], spans=[{"start": 0, "end": 5, "mark": "good"}])
    said = Judgement.across_teams.get(pk=done["judgement"])
    assert [(step["mark"], step["text"]) for step in said.steps] == [("good", "First."), ("bad", "Then."), ("neutral", "Last.")]
    assert said.spans == [{"start": 0, "end": 5, "mark": "good", "text": "First"}]
    back = ask(as_ann, queue, "undo")["claim"]
    assert back["draft"]["steps"] == said.steps
    sent(as_ann, queue, back, **back["draft"])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("steps", [{"start": 0, "end": 3, "mark": "good"}]),
        ("steps", [{"start": 0, "end": 7, "mark": "great"}]),
        ("steps", {"start": 0}),
        ("steps", [{"start": 0, "end": 7, "mark": "good"}] * 2),
        ("spans", [{"start": 0, "end": 10**9, "mark": "good"}]),
        ("spans", [{"start": 5, "end": 5, "mark": "good"}]),
        ("spans", [{"start": -1, "end": 5, "mark": "good"}]),
        ("spans", [{"start": 0, "end": 5, "mark": "neutral"}]),
        ("spans", [{"start": 0, "end": 5, "mark": "good"}, {"start": 4, "end": 6, "mark": "bad"}]),
        ("spans", [{"start": True, "end": 5, "mark": "good"}]),
        ("spans", [{"start": 0, "end": 2**40, "mark": "good"}]),
        ("spans", [{"start": 0, "end": 5, "mark": "good", "more": 1}]),
        ("spans", [7]),
    ],
)
def test_steps_and_spans_that_are_not_there_are_refused(as_ann: Client, team: Team, name: str, given: Any) -> None:
    queue, _ = single_queue(team, steps=True, spans=True)
    held = next_one(as_ann, queue)
    assert fields(sent(as_ann, queue, held, 422, choice="good", **{name: given})) == {name}


RUBRIC = [
    {"name": "help", "label": "Helpful", "kind": "scale", "choices": [], "required": True},
    {"name": "tone", "label": "Tone", "kind": "choice", "choices": ["dry", "warm"], "required": False},
    {"name": "safe", "label": "Safe", "kind": "yesno", "choices": [], "required": False},
]


@pytest.mark.feature(56, 57)
def test_rubric_rationale_and_correction_are_kept(as_ann: Client, team: Team) -> None:
    queue = pair_queue(team, rubric=RUBRIC, correction=True, rationale=Rationale.REQUIRED)
    held = next_one(as_ann, queue)
    assert fields(sent(as_ann, queue, held, 422, choice="1")) == {"rubric.help", "rationale"}
    done = sent(as_ann, queue, held, choice="1", rubric={"help": 4, "safe": True, "tone": ""}, rationale="why", correction="better")
    said = Judgement.across_teams.get(pk=done["judgement"])
    assert (said.rubric, said.rationale, said.correction) == ({"help": 4, "safe": "yes"}, "why", "better")


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ({}, {"choice"}),
        ({"choice": "3"}, {"choice"}),
        ({"choice": 1}, {"choice"}),
        ({"choice": None}, {"choice"}),
        ({"choice": ["1"]}, {"choice"}),
        ({"choice": "skip"}, {"reason"}),
        ({"choice": "skip", "reason": "x" * 1001}, {"reason"}),
        ({"choice": "1", "strength": 4}, {"strength"}),
        ({"choice": "1", "strength": "2"}, {"strength"}),
        ({"choice": "1", "strength": True}, {"strength"}),
        ({"choice": "1", "strength": 2.5}, {"strength"}),
        ({"choice": "1", "rationale": 7}, {"rationale"}),
        ({"choice": "1", "rationale": "x" * 10_001}, {"rationale"}),
        ({"choice": "1", "correction": "not asked"}, {"correction"}),
        ({"choice": "1", "rubric": []}, set()),
        ({"choice": "1", "rubric": [1]}, {"rubric"}),
        ({"choice": "1", "rubric": {"nope": 1}}, {"rubric.nope"}),
        ({"choice": "1", "tiers": [[0]]}, {"tiers"}),
        ({"choice": "1", "steps": [{"start": 0, "end": 1, "mark": "good"}]}, {"steps"}),
        ({"choice": "1", "verdict": "a"}, {"verdict"}),
        ({"choice": "9", "more": 1}, {"choice", "more"}),
    ],
)
def test_a_pair_is_read_strictly(as_ann: Client, team: Team, answer: dict[str, Any], wrong: set[str]) -> None:
    queue = pair_queue(team)
    held = next_one(as_ann, queue)
    if wrong:
        assert fields(sent(as_ann, queue, held, 422, **answer)) == wrong
        assert not Judgement.across_teams.exists()
    assert sent(as_ann, queue, held, **{"choice": "1"} if wrong else answer)["judgement"]


@pytest.mark.parametrize(
    "tiers", [None, [], [[]], [[0, 1]], [[0], [1], [2, 2]], [[0], [1], [3]], [[0, 1, 2], []], [[0], 1, 2], "012", [[0.0, 1, 2]], [[True, 0, 2]]]
)
def test_a_ranking_names_every_answer_once(as_ann: Client, team: Team, tiers: Any) -> None:
    queue = group_queue(team, Kind.RANKING, items=1, answers=3)
    held = next_one(as_ann, queue)
    assert fields(sent(as_ann, queue, held, 422, tiers=tiers)) == {"tiers"}
    sent(as_ann, queue, held, tiers=[[2, 0], [1]])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"null", b"not json", b'{"answer": NaN}', b'{"seconds": 1e999}', b'{"seconds": Infinity}', b"\xff\xfe", b"[" * 100_000,
        b'{"token": ' + b"9" * 5000 + b"}", b'{"token": 12, "key": "x", "answer": {}}', b'{"token": "x"}', b'{"answer": "1"}',
        b'{"answer": ' + b'{"a":' * 30 + b"1" + b"}" * 30 + b"}", b'{"more": 1}', b'{"answer": {"rationale": "' + b"x" * 1_000_001 + b'"}}',
        b'{"answer": {"rationale": "' + b"x" * 3_000_000 + b'"}}', b'{"hold": 99999999999999999999}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["next", "submit", "draft", "renew", "release", "undo", "mine", "revise"])
def test_damaged_requests_are_answered_with_what_is_wrong(as_ann: Client, team: Team, verb: str, body: bytes) -> None:
    queue = pair_queue(team)
    response = as_ann.post(f"/label/{queue.pk}/{verb}/", body, content_type="application/json")
    if not body and verb in ("next", "undo"):  # they need nothing
        assert response.status_code == (200 if verb == "next" else 409)
    else:
        assert response.status_code == 422, response.content
        assert fields(response.json())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = ("choice", "strength", "tiers", "rubric", "rationale", "correction", "steps", "spans", "reason")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), JSON, max_size=6), st.sampled_from(["pair", "ranking", "single"]), JSON)
def test_no_answer_breaks_the_server(as_ann: Client, team: Team, answer: dict[str, Any], kind: str, seconds: Any) -> None:
    if not hasattr(team, "made"):
        single, _ = single_queue(team, steps=True, spans=True)
        team.made = {"pair": pair_queue(team, items=200), "ranking": group_queue(team, Kind.RANKING, 2, 3), "single": single}  # type: ignore[attr-defined]
    queue = team.made[kind]  # type: ignore[attr-defined]
    for held in ask(as_ann, queue, "next", hold=1)["claims"]:
        data = {"token": held["token"], "key": str(uuid.uuid4()), "seconds": seconds, "answer": answer}
        response = as_ann.post(f"/label/{queue.pk}/submit/", json.dumps(data), content_type="application/json")
        assert response.status_code in (200, 422), response.content
        drafted = as_ann.post(f"/label/{queue.pk}/draft/", json.dumps({"token": held["token"], "draft": answer}), content_type="application/json")
        assert drafted.status_code in (200, 409, 422), drafted.content


def test_the_same_key_twice_is_one_label(as_ann: Client, team: Team) -> None:
    queue = pair_queue(team)
    held = next_one(as_ann, queue)
    data = {"token": held["token"], "key": str(uuid.uuid4()), "seconds": 1.5, "answer": {"choice": "1"}}
    assert ask(as_ann, queue, "submit", **data)["judgement"] == ask(as_ann, queue, "submit", **data)["judgement"]
    assert Judgement.across_teams.count() == 1


def test_an_expired_lock_is_a_conflict_that_names_who_has_the_item(as_ann: Client, team: Team, owner: User) -> None:
    queue = pair_queue(team, items=1)
    held = next_one(as_ann, queue)
    Claim.across_teams.update(expires_at=timezone.now() - timedelta(seconds=1))
    claim_items(queue, owner)
    reply = sent(as_ann, queue, held, 409, choice="1", rationale="lost?")
    assert (reply["error"], "owner@example.org" in reply["message"], "kept" in reply["fix"]) == ("expired", True, True)
    assert ask(as_ann, queue, "draft", 409, token=held["token"], draft={"choice": "1"})["error"] == "expired"
    assert ask(as_ann, queue, "renew", tokens=[held["token"]]) == {"held": {}}
    assert ask(as_ann, queue, "next")["reason"].startswith("All remaining items are assigned to others")


def test_another_queue_is_named_only_while_there_is_one(as_ann: Client, team: Team) -> None:
    queue, other = pair_queue(team, 1), pair_queue(team, 1)
    sent(as_ann, queue, next_one(as_ann, queue), choice="1")
    assert "another queue" in ask(as_ann, queue, "next")["fix"]
    sent(as_ann, other, next_one(as_ann, other), choice="1")
    assert "No other queue" in ask(as_ann, queue, "next")["fix"]


def test_drafts_renewals_releases_and_undo(as_ann: Client, team: Team) -> None:
    queue = pair_queue(team)
    assert ask(as_ann, queue, "undo", 409)["error"] == "nothing-to-undo"
    held = next_one(as_ann, queue)
    assert ask(as_ann, queue, "draft", token=held["token"], draft={"choice": "2"})["saved"]
    assert next_one(as_ann, queue)["draft"] == {"choice": "2"}
    assert 890 < ask(as_ann, queue, "renew", tokens=[held["token"]])["held"][held["token"]] <= 900
    sent(as_ann, queue, held, choice="2")
    back = ask(as_ann, queue, "undo")["claim"]
    assert (back["item"], back["draft"]) == (held["item"], {"choice": "2"})
    assert ask(as_ann, queue, "release", tokens=[back["token"]]) == {"released": 1}


def test_one_looks_again_at_what_was_sent_back(as_ann: Client, team: Team, ann: User, owner: User) -> None:
    queue = pair_queue(team)
    said = judge(queue, ann, "a", rationale="first")
    send_back(said, owner, "too short")
    reply = ask(as_ann, queue, "mine", item=said.item_id)
    assert (reply["judgement"], reply["state"], reply["comment"], reply["claim"]["draft"]["rationale"]) == (said.pk, "returned", "too short", "first")
    revised = {"judgement": said.pk, "key": str(uuid.uuid4()), "seconds": 3, "answer": {"choice": "tie"}}
    assert ask(as_ann, queue, "revise", **revised)["judgement"] == said.pk
    accept_judgement(said, owner)
    assert ask(as_ann, queue, "revise", 409, **{**revised, "key": str(uuid.uuid4())})["error"] == "reviewed"
    assert ask(as_ann, queue, "undo", 409)["error"] == "reviewed"
    theirs = judge(queue, owner, "a")
    for verb, data in (("mine", {"item": theirs.item_id}), ("revise", {**revised, "judgement": theirs.pk})):
        response = as_ann.post(f"/label/{queue.pk}/{verb}/", json.dumps(data), content_type="application/json")
        assert response.status_code == 404


def test_refusals_are_words(as_ann: Client, team: Team, ann: User) -> None:
    queue = pair_queue(team, status=QueueStatus.PAUSED)
    assert "paused" in ask(as_ann, queue, "next", 403)["message"]
    viewer = Client()
    viewer.force_login(make_member("eye@example.org", team, Role.VIEWER))
    assert "viewer" in ask(viewer, queue, "next", 403)["message"]


@pytest.mark.parametrize("verb", ["next", "submit", "draft", "renew", "release", "undo", "mine", "revise"])
def test_another_teams_queue_is_not_found_and_only_posts_are_answered(as_stranger: Client, as_ann: Client, team: Team, verb: str) -> None:
    queue = pair_queue(team)
    assert as_stranger.post(f"/label/{queue.pk}/{verb}/", "{}", content_type="application/json").status_code == 404
    assert as_ann.post(f"/label/{10**25}/{verb}/", "{}", content_type="application/json").status_code == 404
    assert as_ann.get(f"/label/{queue.pk}/{verb}/").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = as_ann.cookies
    assert strict.post(f"/label/{queue.pk}/{verb}/", "{}", content_type="application/json").status_code == 403


def test_recording_a_label_asks_the_database_a_fixed_number_of_things(as_ann: Client, team: Team) -> None:
    queue = pair_queue(team, items=30)
    held = next_one(as_ann, queue)
    with CaptureQueriesContext(connection) as few:
        sent(as_ann, queue, held, choice="1")
    assert len(few) <= 25, [query["sql"][:120] for query in few]
    for _ in range(20):
        sent(as_ann, queue, next_one(as_ann, queue), choice="1")
    held = next_one(as_ann, queue)
    with CaptureQueriesContext(connection) as many:
        sent(as_ann, queue, held, choice="1")
    assert len(many) == len(few)
