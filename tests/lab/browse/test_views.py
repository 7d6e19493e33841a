"""The page over rollouts: what its table and its controls say, that an address keeps everything, and that no address breaks it."""

import re
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.lib.column_choice import ColumnChoice
from lab.rollouts.annotations.models import Rating, RolloutTag, Tag
from lab.rollouts.browse import regex
from lab.rollouts.browse.address import Address
from lab.rollouts.browse.bars import build_histogram_bars
from lab.rollouts.browse.columns import build_table_columns
from lab.rollouts.browse.histograms import Histogram
from lab.rollouts.browse.selection import Selection
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.training.runs.models import Run, Status
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started, steps, store
from trainers.contract.events import Message


@pytest.fixture
def run(team: Team) -> Run:
    made = make_run(team, name="first")
    store(made, started(), *steps(1, 3))
    return made


def page(client: Client, query: str = "", **headers: str) -> str:
    response = client.get(f"/rollouts/{query}", headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def shown(body: str) -> list[int]:
    return [int(key) for key in re.findall(r'data-row="(\d+)"', body)]


def test_rollouts_of_the_whole_team_newest_first_with_their_run(as_owner: Client, team: Team, run: Run) -> None:
    other = make_run(team, name="second")
    store(other, started(), rollout(1, completion="from the second run"))
    body = page(as_owner)
    assert shown(body) == list(Rollout.across_teams.order_by("-pk").values_list("pk", flat=True))
    assert "<strong>25</strong> rollouts, newest first" in body
    for text in ("first</bdi>", "second</bdi>", "from the second run"):
        assert text in body
    assert len(shown(page(as_owner, f"?run={other.number}"))) == 1


def test_a_run_is_named_with_the_way_back_to_it(as_owner: Client, run: Run) -> None:
    body = page(as_owner, "?run=1")
    assert f'href="/runs/{run.pk}/"' in body
    assert "<bdi>first</bdi></h1>" in body


def test_filters_become_chips_that_can_be_taken_away(as_owner: Client, run: Run) -> None:
    body = page(as_owner, "?run=1&f=step:eq:2&f=sample:lt:2&sort=-reward&cols=-prompt")
    assert len(shown(body)) == 4
    assert "Step = 2" in body
    assert '?run=1&amp;f=sample%3Alt%3A2&amp;sort=-reward&amp;cols=-prompt"' in body
    assert "Clear all" in body


def test_a_plain_form_adds_a_filter_from_three_values(as_owner: Client, run: Run) -> None:
    body = page(as_owner, "?" + urlencode({"f": "step:le:2", "field": "sample", "operator": "eq", "value": "0", "q": "", "re": ""}))
    assert len(shown(body)) == 4
    assert 'name="f" value="sample:eq:0"' in body
    nothing_chosen = page(as_owner, "?field=&operator=eq&value=")
    assert len(shown(nothing_chosen)) == 24


def test_a_filter_that_cannot_be_used_stays_in_the_form_with_the_fix(as_owner: Client, run: Run) -> None:
    body = page(as_owner, "?field=reward&operator=ge&value=abc")
    assert "&#x27;abc&#x27; is not a number: give one such as 0.5" in body
    assert '<option value="reward" data-kind="number"' in body
    assert re.search(r'id="add-value" name="value" value="abc"', body)
    assert len(shown(body)) == 24  # and nothing else is lost


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("f=run__team:eq:1", "there is no field"),
        ("f=reward:regex:x", "is not an operator of this field"),
        ("f=reward:ge:high", "is not a number"),
        ("run=x", "is not a run number"),
        ("sort=prompt__team", "cannot be sorted by"),
        ("re=(", "the regular expression is invalid"),
    ],
)
def test_what_cannot_be_asked_is_left_out_and_explained(query: str, words: str, as_owner: Client, run: Run) -> None:
    body = unescape(page(as_owner, f"?{query}"))
    assert words in body
    assert len(shown(body)) == 24


def test_a_pattern_that_cannot_be_used_stays_at_its_field(as_owner: Client, run: Run) -> None:
    body = page(as_owner, "?re=%28ab")
    assert re.search(r'name="re" value="\(ab"[^>]*aria-invalid="true" aria-describedby="error-re"', body)


def test_a_header_sorts_and_the_second_click_turns_it_round(as_owner: Client, run: Run) -> None:
    store(run, rollout(9, 0, 0, reward=-2.0), rollout(9, 0, 1, reward=5.0))
    body = page(as_owner)
    assert 'href="?sort=-reward"' in body
    falling = page(as_owner, "?sort=-reward")
    assert 'aria-sort="descending"' in falling
    assert 'href="?sort=reward"' in falling
    values = dict(Rollout.across_teams.values_list("pk", "reward"))
    assert values[shown(falling)[0]] == 5.0
    assert values[shown(page(as_owner, "?sort=reward"))[0]] == -2.0


def test_each_reward_function_in_view_has_a_column_that_sorts(as_owner: Client, run: Run) -> None:
    store(run, rollout(9, rewards={"brevity": -0.5, "correct": 1.0}))
    body = page(as_owner)
    assert 'href="?sort=-component.brevity"' in body
    assert '<span class="below">−0.500</span>' in body
    assert '<option value="component.brevity"' in body


@pytest.mark.feature(32)
def test_columns_are_chosen_kept_and_the_address_wins(as_owner: Client, run: Run) -> None:
    assert "Max entropy</bdi></a></th>" not in page(as_owner)
    offered = ["run", "step", "prompt", "completion", "reward", "component.correct", "max_entropy"]
    data = {"offered": offered, "column": ["step", "completion", "component.correct", "max_entropy"]}
    response = as_owner.post("/rollouts/columns/?run=1&f=step%3Aeq%3A2", data)
    assert response.headers["Location"].startswith("/rollouts/?run=1&f=step%3Aeq%3A2&cols=")
    body = page(as_owner, response.headers["Location"].removeprefix("/rollouts/"))
    heads = re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?<bdi>([^<]+)', body)
    assert "Max entropy" in heads
    assert "Prompt" not in heads
    assert re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?<bdi>([^<]+)', page(as_owner)) == heads  # remembered
    assert "<bdi>Prompt</bdi></th>" in page(as_owner, "?cols=")
    usual = as_owner.post("/rollouts/columns/", {**data, "usual": "1"}).headers["Location"]
    assert usual == "/rollouts/?cols="


def test_a_choice_of_columns_survives_names_of_any_kind() -> None:
    names = ["a,b", "-minus", "ü%", *filter(None, PAYLOADS[:3])]
    offered = build_table_columns(names, one_run=True)
    wanted = [column.name for column in offered if column.name.startswith("component.") and "a,b" not in column.name] + ["max_entropy"]
    read = ColumnChoice.read(str(ColumnChoice.of(offered, wanted)))
    assert [column.name for column in offered if read.sees(column)] == [column.name for column in offered if column.name in wanted]


def test_annotations_stand_in_the_row(as_owner: Client, team: Team, owner: User, run: Run) -> None:
    first = Rollout.across_teams.order_by("-pk")[0]
    RolloutTag.objects.create(rollout=first, tag=Tag.objects.create(team=team, name="<b>loop</b>"), user=owner)
    Rating.objects.create(rollout=first, user=owner, value=4)
    body = page(as_owner, "?cols=tags&f=tag:has:" + "%3Cb%3ELOOP%3C/b%3E")
    assert shown(body) == [first.pk]
    assert "&lt;b&gt;loop&lt;/b&gt;" in body
    assert "★" in body


def test_pages_follow_each_other_and_come_back(as_owner: Client, team: Team) -> None:
    run = make_run(team)
    store(run, started(), *steps(1, 20))
    first = page(as_owner, "?sort=-length")
    older = unescape(re.search(r'id="page-older" rel="next" href="([^"]+)"', first)[1])  # type: ignore[index]
    second = page(as_owner, older)
    assert not set(shown(first)) & set(shown(second))
    newer = unescape(re.search(r'id="page-newer" rel="prev" href="([^"]+)"', second)[1])  # type: ignore[index]
    assert shown(page(as_owner, newer)) == shown(first)


def test_every_row_opens_with_the_list_it_stands_in(as_owner: Client, run: Run) -> None:
    body = page(as_owner, "?run=1&f=step:eq:2&sort=-reward")
    assert f'data-href="/rollouts/{shown(body)[0]}/?list=run%3D1%26f%3Dstep%253Aeq%253A2%26sort%3D-reward"' in body


def test_htmx_gets_the_browser_alone_and_the_canonical_address(as_owner: Client, run: Run) -> None:
    response = as_owner.get("/rollouts/?q=&re=&field=step&operator=eq&value=1&nonsense=1", headers={"HX-Request": "true"})
    assert response.headers["HX-Push-Url"] == "/rollouts/?f=step%3Aeq%3A1"
    assert response.content.decode().lstrip().startswith('<div id="browser"')
    back = as_owner.get("/rollouts/", headers={"HX-Request": "true", "HX-History-Restore-Request": "true"})
    assert "<html" in back.content.decode()


def test_empty_pages_say_why_and_what_to_do(as_owner: Client, team: Team) -> None:
    assert "Every completion that a run samples is stored" in page(as_owner)
    run = make_run(team)
    assert "have no rollouts yet" in page(as_owner, "?run=1")
    store(run, started(), *steps(1, 1))
    body = page(as_owner, "?f=reward:ge:7&f=step:ge:0")
    assert "No results" in body
    assert "without <bdi>Reward ≥ 7</bdi>" in body
    assert "nothing further" in page(as_owner, "?f=reward:ge:7").lower() or "Remove one" in page(as_owner, "?f=reward:ge:7")


def test_a_run_that_the_team_does_not_have_is_said_to_be_none(as_owner: Client, run: Run) -> None:
    body = page(as_owner, "?run=1&run=77")
    assert "your team has no run #77" in body
    assert len(shown(body)) == 24
    nothing = page(as_owner, "?run=77")
    assert shown(nothing) == []
    assert "All runs <svg" not in nothing


def test_an_open_page_learns_of_new_rollouts(as_owner: Client, as_stranger: Client, team: Team, run: Run) -> None:
    def newest(query: str, client: Client = as_owner) -> int:
        return int(client.get(f"/rollouts/newest/{query}").json()["newest"])

    make_run(team, status=Status.RUNNING)
    first = Rollout.across_teams.latest("pk").pk
    assert f'data-newest="{first}" data-growing="/rollouts/newest/"' in page(as_owner)
    assert "data-growing" not in page(as_owner, "?run=1")
    store(run, rollout(9))
    assert (newest(""), newest("?run=1"), newest("?run=2")) == (first + 1, first + 1, 0)
    assert newest("?run=1", as_stranger) == 0


def test_words_that_are_not_indexed_yet_are_announced(as_owner: Client, run: Run) -> None:
    assert "cannot be searched yet" in page(as_owner, "?q=answer")


def test_a_pattern_that_takes_too_long_says_how_far_it_came_and_goes_on(as_owner: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex.search_matching_keys, "__defaults__", (1.0,))  # seconds
    store(run, rollout(9, 0, 0, completion="x" * 4001 + "y"))
    body = page(as_owner, "?run=1&re=" + quote(r"^(x+)(x+)(x+)\1\2\3y$"))
    assert re.search(r"The regular expression timed out after searching \d+ of about 25 rollouts\.", body)
    on = unescape(re.search(r'<a href="([^"]+)"[^>]*>Continue from there', body)[1])  # type: ignore[index]
    assert "after=" in on
    page(as_owner, on)


def test_the_histograms_come_apart_and_each_bin_is_a_link(as_owner: Client, run: Run) -> None:
    store(run, rollout(9, reward=3.0, length=40))
    body = as_owner.get("/rollouts/histograms/?run=1&sort=-length").content.decode()
    assert [name for name in ("reward", "length", "mean_entropy") if f'data-histogram="{name}"' in body] == ["reward", "length"]
    for link in re.findall(r'class="bin[^"]*"|href="([^"]+)" class="bin', body):
        if link:
            assert not Selection.read(QueryDict(unescape(link).partition("?")[2])).problems
    assert "25 rollouts from 1 to 3; most, 24, from 1" in body


def test_bins_of_a_whole_number_share_out_every_rollout() -> None:
    found = Histogram("length", [0.0, 2.5, 5.0], [3, 2], (None, None))
    bars = build_histogram_bars(found, Address(Selection()))
    assert bars is not None
    assert [(bar.lo, bar.hi) for bar in bars.bars] == [("0", "3"), ("3", "5")]
    assert "length%3Ale%3A5" in bars.bars[1].url


def test_the_picker_finds_runs_by_number_and_name(as_owner: Client, team: Team) -> None:
    for name in ("alpha", "beta", "alphabet"):
        make_run(team, name=name)

    def found(query: str) -> list[str]:
        return re.findall(r'name="run" value="(\d+)"', as_owner.get(f"/rollouts/runs/{query}").content.decode())

    assert found("") == ["3", "2", "1"]
    assert found("?find=ALPHA") == ["3", "1"]
    assert found("?find=%232&run=1") == ["1", "2"]
    assert found("?find=" + "9" * 40) == []


def test_the_number_of_queries_does_not_grow_with_the_rows(as_owner: Client, team: Team, run: Run) -> None:
    def asked(query: str) -> int:
        with CaptureQueriesContext(connection) as queries:
            page(as_owner, query)
        return len(queries)

    page(as_owner)
    few = asked("?f=step:eq:1&f=sample:eq:0")
    for number in range(2, 5):
        store(make_run(team, name=str(number)), started(), *steps(1, 6))
    page(as_owner)  # the names of the new runs' reward functions are read once and kept
    assert asked("") <= few + 1
    assert few <= 24


def test_another_teams_rollouts_are_never_shown(as_owner: Client, as_stranger: Client, stranger: User, run: Run) -> None:
    elsewhere = make_run(Team.objects.get(slug="elsewhere"), name="SECRET RUN")
    store(elsewhere, started(), rollout(1, completion="SECRET TEXT", prompt=[Message("user", "SECRET PROMPT")]))
    key = Rollout.objects.get(run=elsewhere).pk
    for url in ("/rollouts/", f"/rollouts/?run={elsewhere.number}", "/rollouts/?q=SECRET", "/rollouts/?re=SECRET", "/rollouts/runs/?find=SECRET"):
        assert "SECRET" not in re.sub(r'value="[^"]*"|<bdi>[^<]*</bdi>|\?[^" ]*', "", as_owner.get(url).content.decode())
    assert as_owner.get(f"/rollouts/preview/{key}/").status_code == 404
    assert as_owner.get(f"/rollouts/preview/{2**63}/").status_code == 404
    assert "SECRET TEXT" in as_stranger.get(f"/rollouts/preview/{key}/").content.decode()
    assert "SECRET TEXT" in page(as_stranger)


def test_the_teams_tags_are_offered_by_name(as_owner: Client, team: Team, stranger: User) -> None:
    for name in ("loops", "<b>answer"):
        Tag.objects.create(team=team, name=name)
    Tag.objects.create(team=Team.objects.get(slug="elsewhere"), name="SECRET")
    body = as_owner.get("/rollouts/tags/").content.decode()
    assert [unescape(name) for name in re.findall("<option>([^<]*)</option>", body)] == ["<b>answer", "loops"]


def test_the_pages_need_a_login_and_changes_a_post(as_owner: Client, db: None) -> None:
    for url in (
        "/rollouts/",
        "/rollouts/histograms/",
        "/rollouts/runs/",
        "/rollouts/tags/",
        "/rollouts/preview/1/",
        "/rollouts/export/csv/",
        "/rollouts/views/1/",
    ):
        assert Client().get(url).headers["Location"].startswith("/accounts/login/")
    for url in ("/rollouts/columns/", "/rollouts/tag/", "/rollouts/views/", "/rollouts/views/1/update/", "/rollouts/views/restore/"):
        assert as_owner.get(url).status_code == 405


def test_texts_of_models_are_text(as_owner: Client, team: Team) -> None:
    run = make_run(team, name=PAYLOADS[1])
    for number, payload in enumerate(map(stored, PAYLOADS)):
        event = rollout(1, 0, number, completion=payload, prompt=[Message("user", payload)], rewards={payload or "r": 1.0}, filtered=payload)
        store(run, *([started()] if not number else []), event)
    body = page(as_owner, "?cols=filtered")
    for tag in re.findall(r"<(script|img|svg|iframe|details|b|a)\b([^>]*)>", body):
        assert MARK not in tag[1] or "href=" in tag[1], tag
    assert f"<img src=x onerror=window.{MARK}=1>" not in body
    assert "⟨U+202E⟩" in body
    text = re.sub(r"\"[^\"]*\"", "", body)
    assert [text[at.start() - 60 : at.end() + 20] for at in re.finditer("\u202e", text)] == []


# Things a person, a script or a mangled link may put into an address.
PIECES = ["f", "q", "re", "sort", "run", "after", "cols", "view", "tries", "field", "operator", "value", "list", "find", "first", "tokens", ""]
VALUES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [*PAYLOADS[:25], "reward:ge:1", "reward:ge:nan", "length:eq:99999999999999999999", "step:lt:-1", "component.:eq:1", "component.x:ge:1e308"]
    ),
    st.sampled_from(["tag:has:x", "prompt:contains:'", "zero_variance:is:yes", "finish:is:stop", "-component.x", "rating", "-2147483649", "9" * 30]),
    st.sampled_from(["W10", "WzAsIiIsMSwxXQ", "[", "(?:a+)+$", "%00", "-reward,,,%", '"a b" -c or']),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(PIECES), VALUES), max_size=6))
def test_no_address_breaks_the_page(as_owner: Client, run: Run, pairs: list[tuple[str, str]]) -> None:
    query = "?" + urlencode([(name, value.encode("utf-8", "replace").decode()) for name, value in pairs])
    for url in ("/rollouts/", "/rollouts/histograms/", "/rollouts/runs/", "/rollouts/tags/", "/rollouts/newest/"):
        assert as_owner.get(url + query).status_code == 200
    address = Address.read(QueryDict(query[1:]))
    again = Address.read(QueryDict(address.url().removeprefix("?")))
    assert (again.selection, again.choice, again.view) == (replace(address.selection, after=""), address.choice, address.view)


def test_a_viewer_sees_no_way_to_tag(client: Client, team: Team, run: Run) -> None:
    viewer = User.objects.create_user("viewer@example.org", "correct horse battery")
    Membership.objects.create(team=team, user=viewer, role=Role.VIEWER)
    client.force_login(viewer)
    assert 'id="tag-form"' not in page(client)
    response: Any = client.post("/rollouts/tag/", {"tag": "x", "scope": "all"})
    assert response.status_code == 403
    assert not RolloutTag.across_teams.exists()


def test_equal_completions_of_a_group_collapse_when_chosen(as_owner: Client, team: Team) -> None:
    run = make_run(team)
    long = "x" * 400
    texts = ["yes", long + "a", "yes", long + "b", long + "a"]
    store(
        run, started(), *(rollout(1, 0, n, completion=text, reward=float(n == 0)) for n, text in enumerate(texts)), rollout(1, 1, 0, completion="yes")
    )
    asked = {"offered": ["completion", "prompt"], "column": ["completion", "prompt"], "same": "1"}
    assert as_owner.post("/rollouts/columns/", asked).headers["Location"].startswith("/rollouts/?cols=%2Asame%2C-advantage%2C")
    body = page(as_owner)  # remembered
    assert len(shown(body)) == 6
    assert [found.count("<tr") for found in re.findall(r'<tbody class="same-rows">(.*?)</tbody>', body, re.S)] == [2, 2]
    assert body.count("2 identical on this page: show all") == 2
    assert body.count("<bdi>reward 0 to 1</bdi>") == 1  # of the short ones
    assert "same-rows" not in page(as_owner, "?cols=-completion,*same")


def test_a_cell_shows_how_a_completion_ends(as_owner: Client, as_stranger: Client, team: Team) -> None:
    run = make_run(team)
    store(run, started(), *(rollout(1, n, completion="<b>" + " and" * length + " <answer>42</answer>\n") for n, length in enumerate((40, 400))))
    body = page(as_owner)
    assert len(re.findall(r'class="words-end"><span><span>[^<]*&lt;answer&gt;42&lt;/answer&gt;</span>', body)) == 1
    [long] = re.findall(r'data-ending="(\d+)"', body)  # its end is not among what the page has read
    assert as_owner.get(f"/rollouts/ends/?ids={long}").json()["ends"][long].endswith("and <answer>42</answer>")
    assert as_stranger.get(f"/rollouts/ends/?ids={long}").json() == {"ends": {}}
