"""Tags, ratings, comments and step marks: who may write, what is refused, and that sending twice or at once loses and doubles nothing."""

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from lab.rollouts.annotations.annotation_panel import AnnotationPanel
from lab.rollouts.annotations.models import Comment, Rating, RolloutTag, StepMark, Tag
from lab.rollouts.annotations.summary import summarize_annotations
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.training.runs.models import Run, Status
from tests.conftest import make_member
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.arrays import pack_array, pack_ids

JSON = {"HTTP_ACCEPT": "application/json"}
PARTS = ["Two plus two.", "\n\n", "It is 4.", "\n\n", "<answer>4</answer>"]


def tokens_of(parts: list[str]) -> dict[str, Any]:
    """A completion of these tokens, as an event's fields."""
    count = len(parts)
    zeros = pack_array([0.0] * count, "e")
    arrays = {
        "ids": pack_ids(range(10, 10 + count)),
        "lengths": pack_array([len(part) for part in parts], "H"),
        "logprobs": zeros,
        "entropies": zeros,
    }
    return {"completion": "".join(parts), "length": count, **arrays}


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.FINISHED)


@pytest.fixture
def one(run: Run) -> Rollout:
    store(run, started(), rollout(1, **tokens_of(PARTS)), rollout(1, 0, 1))
    return Rollout.across_teams.get(sample=0)


@pytest.fixture
def as_teammate(teammate: User) -> Client:
    made = Client()
    made.force_login(teammate)
    return made


def send(client: Client, url: str, status: int = 200, **data: Any) -> Any:
    response = client.post(url, data, **JSON)
    assert response.status_code == status, response.content.decode()[:500]
    return response.json()


def at(one: Rollout, what: str) -> str:
    return f"/rollouts/{one.pk}/{what}/"


def said(one: Rollout, client: Client, text: str = "odd", **data: Any) -> Comment:
    return Comment.across_teams.get(pk=send(client, at(one, "comments"), text=text, **data)["made"])


def test_a_tag_is_made_on_first_use_and_is_one_whatever_its_case(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    first = send(as_owner, at(one, "tags"), name="  Reward   hack ")
    again = send(as_teammate, at(one, "tags"), name="reward HACK")
    assert (first["fresh"], again["fresh"], first["made"]) == (True, False, again["made"])
    assert list(Tag.across_teams.values_list("name", flat=True)) == ["Reward hack"]
    assert RolloutTag.across_teams.count() == 1
    assert "Reward hack" in again["panel"]
    assert send(as_teammate, f"/rollouts/{one.pk}/tags/{first['made']}/remove/")["fresh"]
    assert not send(as_owner, f"/rollouts/{one.pk}/tags/{first['made']}/remove/")["fresh"]
    assert not RolloutTag.across_teams.exists()


def test_tags_are_one_by_the_rules_of_the_database_index(one: Rollout, as_owner: Client) -> None:
    for name in ("STRASSE", "straße", "İstanbul", "i̇stanbul", "ΣΑΣ", "σας"):
        send(as_owner, at(one, "tags"), name=name)
    names = list(Tag.across_teams.values_list("name", flat=True))
    assert {"STRASSE", "straße"} <= set(names)
    assert RolloutTag.across_teams.count() == len(names)


@pytest.mark.parametrize(("name", "words"), [("", "Type a tag"), (" \n ", "Type a tag"), ("x" * 51, "at most 50 characters; this one has 51")])
def test_a_tag_that_cannot_be_says_why(name: str, words: str, one: Rollout, as_owner: Client) -> None:
    answer = send(as_owner, at(one, "tags"), 400, name=name)
    assert words in answer["error"]
    assert answer["field"] == "name"
    assert not Tag.across_teams.exists()


def test_everybody_rates_once_and_may_change_or_take_it_back(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    send(as_owner, at(one, "rating"), value="5")
    send(as_owner, at(one, "rating"), value="4")
    send(as_teammate, at(one, "rating"), value="1")
    assert (summarize_annotations([one.pk])[one.pk].rating, summarize_annotations([one.pk])[one.pk].ratings) == (2.5, 2)
    send(as_owner, at(one, "rating"), value="0")
    assert list(Rating.across_teams.values_list("value", flat=True)) == [1]
    for value in ("6", "-1", "x", "3.5", "٣"):
        assert "1 to 5" in send(as_owner, at(one, "rating"), 400, value=value)["error"]


def test_a_comment_keeps_the_text_the_server_finds_at_its_tokens(one: Rollout, as_owner: Client) -> None:
    made = said(one, as_owner, start="2", end="3", snapshot="what the client says")
    assert (made.start, made.end, made.snapshot) == (2, 3, "It is 4.")
    assert made.place == "run 1 · step 1 · group 0 · sample 0"
    whole = said(one, as_owner)
    assert (whole.start, whole.snapshot) == (None, "")


@pytest.mark.parametrize(("start", "end"), [("2", "9"), ("3", "3"), ("", "4"), ("x", "4"), ("0", "9" * 30), ("-1", "2")])
def test_a_comment_on_tokens_that_are_not_there_is_refused(start: str, end: str, one: Rollout, as_owner: Client) -> None:
    assert send(as_owner, at(one, "comments"), 400, text="x", start=start, end=end)["field"] == "start"
    assert not Comment.across_teams.exists()


def test_sending_a_comment_twice_makes_one(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    key = str(uuid.uuid4())
    first, again = (send(as_owner, at(one, "comments"), text="once", key=key) for _ in range(2))
    assert (first["made"], first["fresh"], again["fresh"]) == (again["made"], True, False)
    send(as_teammate, at(one, "comments"), text="another person may have the same key", key=key)
    assert Comment.across_teams.count() == 2
    assert send(as_owner, at(one, "comments"), 400, text="x", key="nonsense")["field"] == "key"


@pytest.mark.parametrize(("text", "words"), [(" \n", "Enter a comment"), ("x" * 10_001, "at most 10,000 characters; this one has 10,001")])
def test_a_comment_that_cannot_be_says_why(text: str, words: str, one: Rollout, as_owner: Client) -> None:
    assert words in send(as_owner, at(one, "comments"), 400, text=text)["error"]


def test_comments_are_threads_that_can_be_answered_resolved_and_reopened(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    first = said(one, as_owner, start="0", end="1")
    answer = Comment.across_teams.get(pk=send(as_teammate, f"/comments/{first.pk}/answer/", text="why?")["made"])
    deeper = Comment.across_teams.get(pk=send(as_owner, f"/comments/{answer.pk}/answer/", text="because")["made"])
    assert (answer.parent, deeper.parent, deeper.start) == (first, first, None)
    send(as_teammate, f"/comments/{deeper.pk}/resolve/")
    first.refresh_from_db()
    assert (str(first.resolved_by), summarize_annotations([one.pk])[one.pk].open, summarize_annotations([one.pk])[one.pk].comments) == (
        "teammate@example.org",
        0,
        3,
    )
    assert not send(as_owner, f"/comments/{first.pk}/resolve/")["fresh"]
    send(as_owner, f"/comments/{first.pk}/reopen/")
    first.refresh_from_db()
    assert first.resolved_at is None


def test_only_the_writer_changes_a_comment_and_deleting_it_can_be_undone(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    made = said(one, as_owner)
    for verb in ("edit", "delete", "restore"):
        assert "Only the author" in send(as_teammate, f"/comments/{made.pk}/{verb}/", 403, text="mine now")["error"]
    assert "odd" not in send(as_owner, f"/comments/{made.pk}/delete/")["panel"]
    assert not summarize_annotations([one.pk])[one.pk].comments
    assert "odd" in send(as_owner, f"/comments/{made.pk}/restore/")["panel"]


def test_a_deleted_beginning_keeps_its_thread_and_a_deleted_thread_takes_no_answer(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    alone, begun = said(one, as_owner, "alone"), said(one, as_owner, "begun")
    send(as_teammate, f"/comments/{begun.pk}/answer/", text="still here")
    for made in (alone, begun):
        panel = send(as_owner, f"/comments/{made.pk}/delete/")["panel"]
    assert "still here" in panel
    assert panel.count("This comment was deleted.") == 1
    assert "has been deleted" in send(as_teammate, f"/comments/{alone.pk}/answer/", 409, text="late")["error"]
    send(as_teammate, f"/comments/{begun.pk}/answer/", text="not late")


def test_an_edit_does_not_overwrite_one_from_another_window(one: Rollout, as_owner: Client) -> None:
    made = said(one, as_owner)
    send(as_owner, f"/comments/{made.pk}/edit/", text="first window", seen="")
    made.refresh_from_db()
    assert made.edited_at
    assert "another window" in send(as_owner, f"/comments/{made.pk}/edit/", 409, text="second window", seen="")["error"]
    assert not send(as_owner, f"/comments/{made.pk}/edit/", text="first window", seen="")["fresh"]
    send(as_owner, f"/comments/{made.pk}/edit/", text="after reading", seen=made.edited_at.isoformat())
    made.refresh_from_db()
    assert made.text == "after reading"


def test_the_page_offers_the_version_an_edit_is_checked_against(one: Rollout, as_owner: Client) -> None:
    made = said(one, as_owner)
    panel = send(as_owner, f"/comments/{made.pk}/edit/", text="b", seen="")["panel"]
    made.refresh_from_db()
    assert made.edited_at
    assert f'name="seen" value="{made.edited_at.isoformat()}"' in panel


def test_steps_are_marked_by_everybody_for_themselves(one: Rollout, as_owner: Client, as_teammate: Client, owner: User, team: Team) -> None:
    send(as_owner, at(one, "marks"), start="2", mark="bad", snapshot="no")
    send(as_owner, at(one, "marks"), start="2", mark="good")
    send(as_teammate, at(one, "marks"), start="2", mark="bad")
    mine = StepMark.across_teams.get(user=owner)
    assert (mine.start, mine.end, mine.mark, mine.snapshot) == (2, 4, "good", "It is 4.")
    assert summarize_annotations([one.pk])[one.pk].marks == {"good": 1, "bad": 1, "neutral": 0}
    panel = AnnotationPanel(team, owner, one)
    assert panel.ranges == "0-2,2-4,4-5"
    assert [(step.mine, [row.mark for row in step.others]) for step in panel.steps] == [("", []), ("good", ["bad"]), ("", [])]
    send(as_owner, at(one, "marks"), start="2", mark="")
    assert [verdict for _, verdict in AnnotationPanel(team, owner, one).marked] == ["bad"]


@pytest.mark.parametrize(("start", "mark"), [("1", "good"), ("99", "bad"), ("2", "great"), ("", "good"), ("1e3", "good")])
def test_a_mark_that_cannot_be_is_refused(start: str, mark: str, one: Rollout, as_owner: Client) -> None:
    assert send(as_owner, at(one, "marks"), 400, start=start, mark=mark)["error"]
    assert not StepMark.across_teams.exists()


def test_a_viewer_reads_and_is_told_why_writing_is_refused(one: Rollout, team: Team, as_owner: Client) -> None:
    made = said(one, as_owner, "look here")
    viewer, researcher = make_member("viewer@example.org", team, Role.VIEWER), make_member("researcher@example.org", team, Role.RESEARCHER)
    reading = Client()
    reading.force_login(viewer)
    page = reading.get(at(one, "annotations")).content.decode()
    assert "look here" in page
    assert "Annotating requires the role researcher" in page
    assert "<textarea" not in page
    writes = [
        (at(one, what), {"name": "x", "value": "1", "text": "x", "start": "0", "mark": "bad"}) for what in ("tags", "rating", "comments", "marks")
    ]
    writes += [(f"/comments/{made.pk}/{verb}/", {"text": "x"}) for verb in ("answer", "edit", "delete", "restore", "resolve", "reopen")]
    writes += [(f"/rollouts/{one.pk}/tags/1/remove/", {})]
    for url, data in writes:
        response = reading.post(url, data)
        assert (response.status_code, b"your role is viewer" in response.content) == (403, True), url
    assert Comment.across_teams.count() == 1
    reading.force_login(researcher)
    assert send(reading, at(one, "rating"), value="3")["fresh"]


def test_posts_need_the_token_of_the_page(one: Rollout, owner: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner)
    for what in ("tags", "rating", "comments", "marks"):
        assert strict.post(at(one, what), {"name": "x", "value": "1", "text": "x"}).status_code == 403
    assert not Comment.across_teams.exists()
    for what in ("tags", "rating", "comments", "marks"):
        assert strict.get(at(one, what)).status_code == 405


def test_a_page_without_scripts_comes_back_to_the_rollout(one: Rollout, as_owner: Client) -> None:
    response = as_owner.post(at(one, "tags"), {"name": "kept"})
    assert response["Location"] == f"/rollouts/{one.pk}/#annotations"
    response = as_owner.post(at(one, "tags"), {"name": "x" * 60}, follow=False)
    assert response.status_code == 302
    assert "at most 50 characters" in as_owner.get(at(one, "annotations")).content.decode()


def test_somebody_who_looks_for_news_gets_nothing_until_there_is_some(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    version = as_owner.get(at(one, "annotations"), **JSON).json()["version"]
    with CaptureQueriesContext(connection) as queries:
        assert as_owner.get(at(one, "annotations"), {"version": version}, **JSON).status_code == 204
    assert len(queries) <= 9
    for what, data in (("tags", {"name": "x"}), ("rating", {"value": "2"}), ("comments", {"text": "x"}), ("marks", {"start": "0", "mark": "bad"})):
        send(as_teammate, at(one, what), **data)
        response = as_owner.get(at(one, "annotations"), {"version": version}, **JSON)
        assert response.status_code == 200, what
        version = response.json()["version"]


@pytest.mark.feature(108)
def test_a_comment_outlives_its_rollout_and_its_writer(one: Rollout, as_owner: Client, as_teammate: Client, teammate: User) -> None:
    made = said(one, as_teammate, "keep me", start="2", end="3")
    teammate.delete()
    one.delete()
    page = as_owner.get("/comments/").content.decode()
    for words in ("keep me", "It is 4.", "run 1 · step 1 · group 0 · sample 0", "rollout deleted", "former member"):
        assert words in page
    assert send(as_owner, f"/comments/{made.pk}/resolve/")["fresh"]
    assert "has been deleted" not in str(send(as_owner, f"/comments/{made.pk}/answer/", text="late words"))


def test_the_list_of_comments_filters_finds_and_pages(one: Rollout, as_owner: Client, as_teammate: Client) -> None:
    mine, theirs = said(one, as_owner, "mine entirely"), said(one, as_teammate, "theirs entirely", start="0", end="1")
    send(as_owner, f"/comments/{mine.pk}/resolve/")

    def shown(**query: str) -> list[bool]:
        body = as_owner.get("/comments/", query).content.decode()
        return ["mine entirely" in body, "theirs entirely" in body]

    assert shown() == [True, True] == shown(show="nonsense", before="x", other="1") == shown(before="9" * 40)
    assert (shown(show="mine"), shown(show="open"), shown(show="resolved")) == ([True, False], [False, True], [True, False])
    assert (shown(q="TWO PLUS"), shown(q="entirely"), shown(q="%")) == ([False, True], [True, True], [False, False])
    assert (shown(before=str(theirs.pk)), shown(before=str(mine.pk))) == ([True, False], [False, False])
    for number in range(60):
        said(one, as_owner, f"comment number {number}.")
    with CaptureQueriesContext(connection) as queries:
        body = as_owner.get("/comments/").content.decode()
    assert len(queries) <= 6
    assert "comment number 59." in body
    assert "comment number 9." not in body
    following = body.split('<p class="list-more"><a class="button" href="')[1].split('"')[0]
    assert "comment number 9." in as_owner.get("/comments/" + following.replace("&amp;", "&")).content.decode()


def test_summaries_take_the_same_few_queries_for_a_page(run: Run, as_owner: Client) -> None:
    store(run, started(), *(rollout(1, 0, sample) for sample in range(8)))
    ids = list(Rollout.across_teams.values_list("pk", flat=True))
    for pk in ids:
        send(as_owner, f"/rollouts/{pk}/tags/", name="b")
        send(as_owner, f"/rollouts/{pk}/tags/", name="a")
    with CaptureQueriesContext(connection) as queries:
        found = summarize_annotations([*ids, 10**12])
    assert len(queries) == 1
    assert [found[pk].tags for pk in ids] == [["a", "b"]] * 8
    assert not found[10**12]


def test_text_of_people_and_models_is_text(run: Run, as_owner: Client) -> None:
    """Payloads as tags, comments, answers and snapshots: in the panel and in the list nothing of them is markup."""
    for sample, text in enumerate(PAYLOADS):
        text = text[:2000]
        parts = [text] if stored(text) else []
        store(run, *([started()] if not sample else []), rollout(1, 0, sample, **tokens_of([stored(part) for part in parts])))
        one = Rollout.across_teams.get(sample=sample)
        if not stored(text).strip():
            continue
        send(as_owner, at(one, "tags"), name=stored(text)[:50])
        made = said(one, as_owner, stored(text), start="0", end="1")
        panel = send(as_owner, f"/comments/{made.pk}/answer/", text=stored(text))["panel"]
        for markup in ("<script", "<img", "<iframe", "<svg onload", "<details open", "<b hx", f"onfocus=window.{MARK}=1 a"):
            assert markup not in panel, text
        assert "\u202e" not in re.sub(r"(?s)<textarea.*?</textarea>|<[^>]*>", "", panel)  # shown by name, but edited as it is
        assert made.snapshot == Rollout.across_teams.get(pk=one.pk).completion
    body = as_owner.get("/comments/").content.decode()
    assert "<script>window" not in body
    assert "<img" not in body.replace('<img src="/static/base/favicon.svg"', "")


def test_a_rollout_without_tokens_takes_comments_on_the_whole(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(1, ids=b"", lengths=b"", logprobs=b"", entropies=b""))
    one = Rollout.across_teams.get()
    one.tokens.delete()
    assert "has no stored tokens" in as_owner.get(at(one, "annotations")).content.decode()
    said(one, as_owner)
    assert "which has 0" in send(as_owner, at(one, "comments"), 400, text="x", start="0", end="1")["error"]


def test_another_teams_people_find_nothing(one: Rollout, as_owner: Client, as_stranger: Client, stranger: User) -> None:
    made = said(one, as_owner, "secret words")
    number = send(as_owner, at(one, "tags"), name="secret tag")["made"]
    for url in (
        at(one, "tags"),
        at(one, "rating"),
        at(one, "comments"),
        at(one, "marks"),
        f"/comments/{made.pk}/delete/",
        f"/comments/{10**25}/delete/",
    ):
        assert as_stranger.post(url, {"text": "x", "name": "x", "value": "1"}).status_code == 404, url
    assert as_stranger.post(f"/rollouts/{one.pk}/tags/{number}/remove/").status_code == 404
    assert as_stranger.get(at(one, "annotations")).status_code == 404
    assert as_stranger.get(f"/rollouts/{10**25}/annotations/").status_code == 404
    assert "secret" not in as_stranger.get("/comments/").content.decode()
    run = make_run(stranger.memberships.get().team)
    store(run, started(), rollout(1))
    theirs = Rollout.objects.get(run=run)
    assert "secret tag" not in as_stranger.get(at(theirs, "annotations")).content.decode()
    assert send(as_stranger, at(theirs, "tags"), name="Secret tag")["made"] != number
    assert Membership.objects.filter(user=stranger).count() == 1


@pytest.mark.django_db(transaction=True)
def test_what_is_sent_at_the_same_moment_counts_once(team: Team, owner: User) -> None:
    run = make_run(team)
    store(run, started(), rollout(1, **tokens_of(PARTS)))
    one, key, start = Rollout.across_teams.get(), str(uuid.uuid4()), Barrier(4)

    def press(_: int) -> list[int]:
        client = Client()
        client.force_login(owner)
        found = []
        for what, data in (("tags", {"name": "at once"}), ("rating", {"value": "3"}), ("marks", {"start": "0", "mark": "bad"}), ("comments", {})):
            start.wait(20)
            found.append(client.post(at(one, what), {"text": "once", "key": key, **data}, **JSON).status_code)
        connection.close()
        return found

    with ThreadPoolExecutor(4) as people:
        assert list(people.map(press, range(4))) == [[200] * 4] * 4
    assert [model.across_teams.count() for model in (Tag, RolloutTag, Rating, StepMark, Comment)] == [1] * 5
