"""The pages of queues: the list, making one, one queue, its people and settings."""

import json
import uuid
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from lab.labelling.labels import people
from lab.labelling.labels.guidelines import render_guidelines
from lab.labelling.labels.item_claims import claim_items
from lab.labelling.labels.models import Item, ItemState, Judgement, Kind, Purpose, Queue, QueueStatus, Verdict
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.teams.accounts.models import Role, Team, User
from lab.training.runs.models import Run
from tests.conftest import make_member
from tests.hostile import MARK, PAYLOADS
from tests.lab.supervisor.spools import make_run, rollout, started, store


@pytest.fixture
def run(team: Team) -> Run:
    run = make_run(team)
    events = [rollout(step, 0, at, completion=f"{step} {at}", reward=float(at), rewards={"correct": float(at)}) for step in range(6) for at in (0, 1)]
    store(run, started(), *events)
    return run


@pytest.fixture
def queue(team: Team, owner: User, run: Run) -> Queue:
    rows = list(run.samples.order_by("step", "sample"))
    items = [NewItem(a.prompt_id, (a.pk, b.pk)) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    return make_queue(
        team, owner, name="Which is better", kind=Kind.PAIR, items=items, overlap=2, selection=f"run={run.number}&how=group&most=6&per=1"
    )


@pytest.fixture
def annotator(team: Team) -> User:
    return make_member("ann@example.org", team, Role.ANNOTATOR)


@pytest.fixture
def as_annotator(annotator: User) -> Client:
    client = Client()
    client.force_login(annotator)
    return client


def judge(queue: Queue, user: User, verdict: Verdict = Verdict.A) -> Judgement:
    item = queue.items.order_by("place")[0]
    return Judgement.objects.create(item=item, queue=queue, user=user, key=uuid.uuid4(), verdict=verdict, order=[0, 1], seconds=1)


def form(**changes: Any) -> dict[str, Any]:
    usual = {"selection": "", "kind": "pair", "how": "group", "strategy": "random", "most": 200, "per": 1, "phase": "", "gold": 0, "seed": 0}
    rest = {"name": "Mine", "overlap": 1, "lock_minutes": 15, "skipping": "others", "assigned_only": "", "rationale": "optional", "trust_after": 10}
    return {**usual, **rest, "blind": "on", "strength": "on", **changes}


def page(client: Client, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, url
    return response.content.decode()


def test_without_queues_the_list_says_how_to_make_one(as_owner: Client, as_annotator: Client) -> None:
    assert "Create queue" in page(as_owner, "/label/")
    assert "Create queue" not in page(as_annotator, "/label/")


def test_annotators_see_only_queues_open_to_them(as_annotator: Client, annotator: User, queue: Queue) -> None:
    assert queue.name in page(as_annotator, "/label/")
    Queue.across_teams.update(assigned_only=True)
    assert queue.name not in page(as_annotator, "/label/")
    assert as_annotator.get(f"/label/{queue.pk}/").status_code == 404
    people.add_labeller(queue, annotator)
    assert queue.name in page(as_annotator, "/label/")


def test_the_list_counts_items_labels_and_agreement(as_owner: Client, queue: Queue, owner: User, annotator: User) -> None:
    judge(queue, owner)
    pks = list(queue.items.order_by("place").values_list("pk", flat=True))
    Item.across_teams.filter(pk__in=pks[:3]).update(state=ItemState.DONE, labels=2)
    Item.across_teams.filter(pk=pks[3]).update(state=ItemState.CONFLICT, labels=2)
    Item.across_teams.filter(pk=pks[4]).update(state=ItemState.DROPPED)
    shown = page(as_owner, "/label/")
    assert "4/5" in shown
    assert "1 conflict" in shown
    assert "75 % (30 to 95, n 4)" in shown
    assert "you labelled 1" in shown


@pytest.mark.parametrize("path", ["/label/new/", "/label/{pk}/settings/"])
def test_making_and_changing_are_for_leads(as_annotator: Client, queue: Queue, path: str) -> None:
    assert as_annotator.get(path.format(pk=queue.pk)).status_code == 403
    assert as_annotator.post(path.format(pk=queue.pk), form()).status_code == 403
    assert as_annotator.post(f"/label/{queue.pk}/act/", {"act": "close"}).status_code == 403
    assert as_annotator.post(f"/label/{queue.pk}/people/", {"act": "pause", "user": 1}).status_code == 403


def test_annotators_do_not_see_gold_nor_what_a_queue_was_made_from(as_owner: Client, as_annotator: Client, queue: Queue) -> None:
    queue.items.update(gold={"verdict": "a", "by": "correct"})
    for part in ("", "?part=items", "?part=forecast", "?state=gold"):
        assert "gold" not in page(as_annotator, f"/label/{queue.pk}/{part}").lower()
    assert "Source" in page(as_owner, f"/label/{queue.pk}/")
    assert "Source" not in page(as_annotator, f"/label/{queue.pk}/")


def test_a_queue_is_made_from_a_selection_with_everything_that_was_asked(as_owner: Client, annotator: User, run: Run) -> None:
    rubric = {"rubric_label": ["Is it polite?", "Tone"], "rubric_kind": ["yesno", "choice"], "rubric_choices": ["", "warm, cold, warm"]}
    wanted = form(
        selection=f"run={run.number}&f=step:lt:4", gold=2, gold_by="correct", guidelines="# Be fair", assigned_only="on", people=[annotator.pk]
    )
    wanted |= {**rubric, "rubric_required": ["yes", ""], "rubric_name": ["", ""], "overlap": 3, "trust": 80, "due": "2099-01-02T03:04", "token": "t"}
    response = as_owner.post("/label/new/", wanted)
    made = Queue.across_teams.get()
    assert response.url == f"/label/{made.pk}/"
    assert (made.items.count(), made.items.filter(gold__isnull=False).count(), made.overlap, made.min_trust) == (4, 2, 3, 0.8)
    assert set(made.items.values_list("room", flat=True)) == {3}
    assert [(one["name"], one["kind"], one["choices"], one["required"]) for one in made.rubric] == [
        ("is_it_polite", "yesno", [], True),
        ("tone", "choice", ["warm", "cold"], False),
    ]
    assert list(made.members.values_list("user", "labels")) == [(annotator.pk, True)]
    assert as_owner.post("/label/new/", wanted).url == response.url  # the same form again
    assert Queue.across_teams.count() == 1
    assert f"run={run.number}" in made.selection
    assert "Be fair</h3>" in page(as_owner, response.url)


WRONG = [
    ({"name": " "}, "Enter a name for the queue."),
    ({"most": "many"}, "Enter a whole number"),
    ({"most": 100_001}, "At most 100,000."),
    ({"kind": "poem"}, "is not available"),
    ({"kind": "single", "strategy": "largest-gap"}, "A single answer has no reward gap."),
    ({"how": "time", "early_from": 5, "early_to": 2, "late_from": 1, "late_to": 9}, "Enter 5 or more."),
    ({"how": "time"}, "Enter a step."),
    ({"how": "runs", "a_run": 99, "b_run": 1}, "Your team has no run #99."),
    ({"how": "runs", "a_run": 1, "b_run": 1}, "Both sides are the same run"),
    ({"gold": 5}, "Choose the reward function"),
    ({"gold": 5, "gold_by": "correct", "most": 5}, "most of which should be real questions"),
    ({"gold": 5, "gold_by": "made up"}, "No run of the selection has this reward function."),
    ({"gold": 5, "gold_by": "correct", "kind": "ranking"}, "Only pairs and single answers can be gold."),
    ({"assigned_only": "on"}, "Choose at least one person"),
    ({"people": [10**12]}, "no longer in the team"),
    ({"due": "2001-01-01T00:00"}, "This time is in the past."),
    ({"rubric_label": ["x"], "rubric_kind": ["choice"], "rubric_choices": ["one"]}, "Enter 2 to 12 choices"),
    ({"selection": "f=step:gt:1000"}, "These settings give no items"),
    ({"guidelines": "x" * 20_001}, "At most 20,000 characters."),
    ({"a_run": 10**30, "how": "runs", "b_run": 1}, "At most"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[str(changes)[:40] for changes, _ in WRONG])
def test_wrong_input_is_told_at_the_field_and_nothing_is_lost(as_owner: Client, run: Run, changes: dict[str, Any], words: str) -> None:
    guidelines = changes.get("guidelines", "My long guidelines")
    response = as_owner.post("/label/new/", {**form(lock_minutes=77, **changes), "guidelines": guidelines})
    shown = response.content.decode()
    assert response.status_code == 422
    assert words in shown
    assert "My long guidelines" in shown or guidelines != "My long guidelines"
    assert 'value="77"' in shown
    assert not Queue.across_teams.exists()


def test_the_preview_says_how_many_what_is_left_out_and_shows_the_first(as_owner: Client, run: Run) -> None:
    shown = as_owner.post("/label/new/?part=preview", form(selection=f"run={run.number}", strategy="disagreement", most=4)).content.decode()
    assert "<strong>4</strong> pairs" in shown
    assert "beyond the 4 that were asked for" in shown
    assert "fewer than 30 earlier votes" in shown
    assert shown.count('class="sample"') == 3
    assert not Queue.across_teams.exists()
    assert "Your team has no run #99" in as_owner.post("/label/new/?part=preview", form(how="runs", a_run=99, b_run=1)).content.decode()


@pytest.mark.parametrize(
    "query", ["", "?run=1&f=nonsense", "?run=abc&how=runs&a_run=x", "?from=999", "?from=0d&kind=ranking", "?re=[", "?most=%00&part=preview"]
)
def test_any_address_opens_the_form(as_owner: Client, run: Run, query: str) -> None:
    assert as_owner.get(f"/label/new/{query}").status_code == 200


def test_a_copy_starts_with_what_the_queue_has(as_owner: Client, queue: Queue) -> None:
    shown = page(as_owner, f"/label/new/?from={queue.pk}")
    assert "Which is better (copy)" in shown
    assert f"run={queue.selection[4]}" in shown
    assert "No items" not in page(as_owner, f"/label/new/?from={queue.pk}&part=preview")


def test_another_teams_queue_and_runs_are_not_there(as_stranger: Client, queue: Queue, run: Run) -> None:
    for path in ("", "settings/"):
        assert as_stranger.get(f"/label/{queue.pk}/{path}").status_code == 404
    assert as_stranger.post(f"/label/{queue.pk}/act/", {"act": "close"}).status_code == 404
    assert as_stranger.post(f"/label/{queue.pk}/people/", {"act": "pause", "user": 1}).status_code == 404
    assert "Which is better" not in page(as_stranger, f"/label/new/?from={queue.pk}")
    assert as_stranger.get(f"/label/{10**30}/").status_code == 404


def test_pause_close_and_open(as_owner: Client, queue: Queue) -> None:
    for act, status in (("pause", QueueStatus.PAUSED), ("close", QueueStatus.CLOSED), ("open", QueueStatus.OPEN), ("dance", QueueStatus.OPEN)):
        as_owner.post(f"/label/{queue.pk}/act/", {"act": act})
        queue.refresh_from_db()
        assert queue.status == status


def test_only_a_queue_without_labels_is_deleted(as_owner: Client, queue: Queue, owner: User) -> None:
    judge(queue, owner)
    shown = as_owner.post(f"/label/{queue.pk}/act/", {"act": "delete"}, follow=True).content.decode()
    assert "so it cannot be deleted" in shown
    Judgement.across_teams.all().delete()
    as_owner.post(f"/label/{queue.pk}/act/", {"act": "delete"})
    assert not Queue.across_teams.exists()


def test_more_items_come_after_the_others_and_are_not_those_it_has(as_owner: Client, queue: Queue, run: Run) -> None:
    shown = as_owner.post(f"/label/{queue.pk}/act/", {"act": "more", "count": "3", "token": "a"}, follow=True).content.decode()
    assert "gives no further items" in shown
    kept = list(queue.items.order_by("place").values_list("pk", flat=True)[:2])
    queue.items.exclude(pk__in=kept).delete()
    for token in ("b", "b"):  # a double press adds once
        as_owner.post(f"/label/{queue.pk}/act/", {"act": "more", "count": "3", "token": token})
    items = list(queue.items.order_by("place"))
    assert [item.pk for item in items[:2]] == kept
    assert len(items) == 5
    assert len({tuple(sorted(item.rollouts)) for item in items}) == 5


@pytest.mark.parametrize("count", ["", "0", "-1", "many", "99999999999999", "10001"])
def test_a_wrong_number_of_further_items_is_told(as_owner: Client, queue: Queue, count: str) -> None:
    shown = as_owner.post(f"/label/{queue.pk}/act/", {"act": "more", "count": count}, follow=True).content.decode()
    assert "More items:" in shown


def test_who_is_removed_or_paused_gives_back_what_they_held(as_owner: Client, queue: Queue, annotator: User) -> None:
    for act, back in (("remove", "add"), ("pause", "resume")):
        assert len(claim_items(queue, annotator)) == 2
        as_owner.post(f"/label/{queue.pk}/people/", {"act": act, "user": annotator.pk})
        assert not queue.claims.filter(seated=True).exists()
        assert set(queue.items.values_list("room", flat=True)) == {2}
        as_owner.post(f"/label/{queue.pk}/people/", {"act": back, "user": annotator.pk})
    assert len(claim_items(queue, annotator)) == 2


def test_a_reviewer_of_an_assigned_queue_does_not_label_in_it(as_owner: Client, queue: Queue, annotator: User) -> None:
    Queue.across_teams.update(assigned_only=True)
    as_owner.post(f"/label/{queue.pk}/people/", {"act": "reviewer", "user": annotator.pk})
    [row] = [person for person in people.people_of(Queue.across_teams.get()) if person.user == annotator]
    assert (row.reviews, row.labels) == (True, False)


def test_a_reviewer_finds_the_way_to_what_is_to_be_reviewed(as_annotator: Client, queue: Queue, annotator: User) -> None:
    for url in ("/label/", f"/label/{queue.pk}/"):
        assert "Review labels" not in page(as_annotator, url)
    people.set_reviewer(queue, annotator, True)
    for url in ("/label/", f"/label/{queue.pk}/"):
        assert "Review labels" in page(as_annotator, url)


def test_somebody_of_another_team_cannot_be_assigned(as_owner: Client, queue: Queue, stranger: User) -> None:
    assert as_owner.post(f"/label/{queue.pk}/people/", {"act": "add", "user": stranger.pk}).status_code == 404


def test_settings_before_and_after_labels(as_owner: Client, queue: Queue, owner: User) -> None:
    changes = {"blind": "", "overlap": 1, "rubric_label": ["Why?"], "rubric_kind": ["scale"], "rubric_choices": [""], "rubric_name": [""]}
    as_owner.post(f"/label/{queue.pk}/settings/", form(**changes))
    queue.refresh_from_db()
    assert (queue.blind, queue.overlap, queue.name, queue.rubric[0]["name"]) == (False, 1, "Mine", "why")
    assert set(queue.items.values_list("room", flat=True)) == {1}
    judge(queue, owner)
    shown = as_owner.post(f"/label/{queue.pk}/settings/", form(overlap=0, blind="on"))
    assert shown.status_code == 422
    assert "so it cannot be removed" in shown.content.decode()
    changes = {"overlap": 3, "blind": "on", "reviewed": "on", "rubric_label": ["Why so?"], "rubric_kind": ["scale"], "rubric_name": ["why"]}
    assert as_owner.post(f"/label/{queue.pk}/settings/", form(**changes)).status_code == 302
    queue.refresh_from_db()
    assert (queue.overlap, queue.blind, queue.reviewed) == (3, False, False)  # of labels that exist, those are fixed
    assert (queue.rubric[0]["name"], queue.rubric[0]["label"]) == ("why", "Why so?")


def test_more_labels_an_item_open_what_was_done(as_owner: Client, queue: Queue, owner: User) -> None:
    judge(queue, owner)
    done = queue.items.order_by("place")[0]
    Item.across_teams.filter(pk=done.pk).update(state=ItemState.DONE, room=0, labels=2)
    settled = queue.items.order_by("place")[1]
    Item.across_teams.filter(pk=settled.pk).update(state=ItemState.SETTLED, room=0)
    as_owner.post(f"/label/{queue.pk}/settings/", form(overlap=3))
    done.refresh_from_db()
    settled.refresh_from_db()
    assert (done.state, done.room) == (ItemState.OPEN, 1)
    assert (settled.state, settled.room) == (ItemState.SETTLED, 0)


def test_the_forecast_has_an_adjustable_width(as_owner: Client, queue: Queue) -> None:
    shown = page(as_owner, f"/label/{queue.pk}/?part=forecast&width=0.2")
    assert "No votes on answers with different rewards yet" in shown
    assert "narrower than 20 points" in shown
    for width in ("nan", "inf", "-3", "x" * 50):
        assert as_owner.get(f"/label/{queue.pk}/", {"part": "forecast", "width": width}).status_code == 200


def test_the_due_date_shows_when_it_is_over(as_owner: Client, queue: Queue) -> None:
    Queue.across_teams.update(due=timezone.now() - timedelta(hours=1))
    assert "overdue since" in page(as_owner, "/label/")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_guidelines_run_nothing_and_fetch_nothing(payload: str) -> None:
    tags = Tags()
    for markdown in (
        payload,
        f"# {payload}",
        f"[{payload}](x)",
        f"[x]({payload})",
        f"```\n{payload}\n```",
        f"| {payload} |\n|---|\n| x |",
        f"<{payload}>",
    ):
        tags.feed(render_guidelines(markdown))
    assert tags.seen <= {"a", "p", "h1", "h3", "h4", "code", "pre", "em", "strong", "blockquote", "ul", "ol", "li", "hr", "br", "s"} | TABLE
    assert {name for _, name, _ in tags.attributes} <= {"href", "rel", "title", "start"}
    assert not [
        value for _, name, value in tags.attributes if name == "href" and ":" in value and not value.startswith(("http:", "https:", "mailto:"))
    ]


TABLE = {"table", "thead", "tbody", "tr", "th", "td"}


class Tags(HTMLParser):
    """Every tag and attribute that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def test_guidelines_keep_what_people_write() -> None:
    made = render_guidelines("# Title\n\n1. **bold** `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[link](https://example.org)")
    for part in ("<h3>Title</h3>", "<strong>bold</strong>", "<td>2</td>", 'href="https://example.org"', 'rel="noopener noreferrer nofollow"'):
        assert part in made


def test_hostile_texts_are_text_on_every_page(as_owner: Client, team: Team, owner: User) -> None:
    run = make_run(team, name=PAYLOADS[0][:100])
    texts = [one for one in PAYLOADS if "\0" not in one and "\ud800" not in one]
    store(run, started(), *(rollout(1, 0, at, completion=text, rewards={text: 1.0}, reward=1.0) for at, text in enumerate(texts)))
    asked = form(selection=f"run={run.number}", per=0, name=PAYLOADS[0], guidelines=PAYLOADS[0], rubric_label=[PAYLOADS[1]], rubric_kind=["scale"])
    response = as_owner.post("/label/new/", asked)
    made = Queue.across_teams.get()
    assert json.dumps(made.rubric)
    for url in (
        "/label/",
        response.url,
        f"{response.url}?part=items",
        f"{response.url}settings/",
        f"/label/new/?from={made.pk}",
        f"/label/new/?from={made.pk}&part=preview",
    ):
        shown = page(as_owner, url)
        assert f"<script>window.{MARK}" not in shown
        assert f"<img src=x onerror=window.{MARK}" not in shown


def test_a_queue_leads_to_taking_its_labels_back_and_to_a_dataset(as_owner: Client, as_annotator: Client, queue: Queue, annotator: User) -> None:
    recall, dataset = f"/recalls/new/?kind=queue&amp;queue={queue.pk}", f"/datasets/new/?queue={queue.pk}"
    person = f"/recalls/new/?kind=labeller&amp;labeller={annotator.pk}"
    text = page(as_owner, f"/label/{queue.pk}/")
    assert not any(link in text for link in (recall, dataset, person))
    item = judge(queue, annotator).item
    assert recall in page(as_owner, f"/label/{queue.pk}/")
    assert dataset not in page(as_owner, f"/label/{queue.pk}/")
    Item.across_teams.filter(pk=item.pk).update(state=ItemState.DONE)
    text = page(as_owner, f"/label/{queue.pk}/")
    assert all(link in text for link in (recall, dataset, person))
    assert person in page(as_owner, f"/label/{queue.pk}/quality/")
    assert "/recalls/new/" not in page(as_annotator, f"/label/{queue.pk}/") + page(as_annotator, f"/label/{queue.pk}/quality/")
    assert f'<option value="{queue.pk}" selected>' in page(as_owner, unescape(recall))
    assert f'<option value="{annotator.pk}" selected>' in page(as_owner, unescape(person))
    assert f'name="queue" value="{queue.pk}" checked' in page(as_owner, dataset)
    Queue.across_teams.update(purpose=Purpose.AB)
    assert dataset not in page(as_owner, f"/label/{queue.pk}/")


def test_a_prompt_leads_to_taking_back_what_was_said_about_it(as_owner: Client, client: Client, team: Team, queue: Queue) -> None:
    prompt = queue.items.all()[0].prompt_id
    recall = f"/recalls/new/?kind=prompt&amp;prompt={prompt}"
    assert recall in page(as_owner, f"/prompts/{prompt}/")
    assert f'name="prompt" value="{prompt}"' in page(as_owner, unescape(recall))
    client.force_login(make_member("viewer@example.org", team, Role.VIEWER))
    assert recall not in page(client, f"/prompts/{prompt}/")
