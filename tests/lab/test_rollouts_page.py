"""The rollouts feed: which step, in which order, how much at once, and whatever a model wrote shown as text."""

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext

from lab.rollouts.annotations import verbs
from lab.rollouts.trajectories.cards import format_signed_value
from lab.rollouts.trajectories.excerpts import make_excerpt
from lab.rollouts.trajectories.feed import PAGE, Feed, read_feed
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.selection import Selection
from lab.rollouts.trajectories.step_summary import summarize_step_rollouts
from lab.rollouts.trajectories.steps import list_replayed_ranges, locate_step
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run, measured, rollout, started, steps, store
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message, Turn

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def feed(run: Run, **query: Any) -> Feed:
    asked = QueryDict(mutable=True)
    asked.update({name: str(value) for name, value in query.items()})
    return read_feed(run, Selection.read(asked))


def shape(found: Feed) -> list[tuple[int, list[int]]]:
    return [(group.number, [card.rollout.sample for card in group.cards]) for group in found.groups]


def page(client: Client, run: Run, **query: Any) -> str:
    response = client.get(f"/runs/{run.pk}/rollouts/", query)
    assert response.status_code == 200
    return response.content.decode()


def test_the_newest_step_is_shown_when_none_is_asked_for(run: Run) -> None:
    store(run, started(), *steps(1, 4))
    assert feed(run).steps.step == 4
    assert feed(run, step=2).steps.step == 2


def test_a_step_without_rollouts_gives_the_nearest_before_it_else_after_it(run: Run) -> None:
    store(run, started(), rollout(10), rollout(20), rollout(40))
    assert [feed(run, step=step).steps.step for step in (0, 10, 19, 30, 99)] == [10, 10, 10, 20, 40]
    steps_of = locate_step(run, "train", 20)
    assert (steps_of.first, steps_of.before, steps_of.after, steps_of.last, list(steps_of.listed)) == (10, 10, 40, 40, [10, 20, 40])


def test_neighbours_are_found_in_a_run_with_too_many_steps_to_list(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.rollouts.trajectories.steps.WALK", 3)
    store(run, started(), *(rollout(step) for step in range(1, 30, 3)))
    found = locate_step(run, "train", 13)
    assert (found.first, found.before, found.step, found.after, found.last, list(found.listed)) == (1, 10, 13, 16, 28, [])


def test_the_steps_of_held_out_rollouts_are_those_that_were_measured(run: Run) -> None:
    held = [event for step in (0, 5, 10) for event in (rollout(step, phase="heldout"), measured(step, values={"heldout/reward": 0.5}))]
    store(run, started(), *held, *steps(1, 4))
    found = feed(run, phase="heldout", step=7)
    assert (found.steps.step, found.steps.before, found.steps.after, list(found.steps.listed)) == (5, 0, 10, [0, 5, 10])


def test_a_run_that_has_only_been_measured_shows_that(run: Run) -> None:
    store(run, started(), rollout(0, phase="heldout"), measured(0, values={"heldout/reward": 0.5}))
    assert (feed(run).selection.phase, feed(run).total) == ("heldout", 1)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("order", [(0, [0, 1]), (1, [0, 1])]),
        ("best", [(1, [1, 0]), (0, [0, 1])]),
        ("worst", [(1, [0, 1]), (0, [1, 0])]),
        ("longest", [(0, [1, 0]), (1, [0, 1])]),
        ("uncertain", [(0, [0, 1]), (1, [1, 0])]),
    ],
)
def test_a_sort_orders_groups_by_their_extreme_and_keeps_them_together(order: str, expected: Any, run: Run) -> None:
    rows = [(0, 0, 0.5, 10, 2.0), (0, 1, 0.2, 30, 0.1), (1, 0, -1.0, 20, 0.2), (1, 1, 1.0, 5, 1.0)]
    store(
        run,
        started(),
        *(rollout(1, group, sample, reward=reward, length=length, mean_entropy=entropy) for group, sample, reward, length, entropy in rows),
    )
    assert shape(feed(run, sort=order)) == expected


def test_a_group_says_its_mean_its_spread_and_when_it_has_none(run: Run) -> None:
    store(
        run,
        started(),
        *(rollout(1, 0, sample, reward=float(sample % 2)) for sample in range(4)),
        *(rollout(1, 1, sample, reward=1.0) for sample in range(4)),
    )
    spread, flat = feed(run).groups
    assert (spread.mean, spread.zero_variance) == (0.5, False)
    assert spread.std == pytest.approx(0.57735, abs=1e-5)  # over n - 1, as the advantages are scaled
    assert flat.zero_variance


def test_rewards_that_are_absent_are_neither_zero_nor_without_variance(run: Run, as_owner: Client) -> None:
    store(run, started(), *(rollout(1, 0, sample, reward=None, rewards={"correct": None}) for sample in range(2)))
    assert not feed(run).groups[0].zero_variance
    assert "correct</bdi> n/a" in page(as_owner, run)


def follow_more(run: Run, **query: Any) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    found = feed(run, **query)
    for _ in range(50):
        seen += [(group, sample) for group, samples in shape(found) for sample in samples]
        assert sum(len(group.cards) for group in found.groups) <= PAGE
        if not found.more:
            return seen
        found = read_feed(run, Selection.read(QueryDict(found.more[1:])))
    raise AssertionError("more never ends")


@pytest.mark.parametrize("order", ["order", "best", "worst", "longest", "uncertain"])
@pytest.mark.parametrize(("groups", "samples"), [(30, 8), (2, 150), (70, 1), (1, 64)])
def test_more_shows_every_rollout_once(groups: int, samples: int, order: str, run: Run) -> None:
    store(
        run,
        started(),
        *(rollout(1, group, sample, reward=float((group * 7 + sample * 3) % 5)) for group in range(groups) for sample in range(samples)),
    )
    seen = follow_more(run, sort=order)
    assert len(seen) == groups * samples == len(set(seen))


def test_a_page_never_breaks_a_group_that_fits(run: Run) -> None:
    store(run, started(), *(rollout(1, group, sample) for group in range(20) for sample in range(12)))
    assert [len(group.cards) for group in feed(run).groups] == [12] * 5


def test_replayed_rollouts_are_hidden_until_asked_for(run: Run, as_owner: Client) -> None:
    store(run, started(), *steps(1, 6), started(attempt=2, from_step=3), *steps(4, 5, attempt=2))
    assert list_replayed_ranges(run) == [(2, 4, 6)]
    assert {card.rollout.attempt for group in feed(run, step=4).groups for card in group.cards} == {2}
    assert feed(run).steps.last == 5
    hidden, both = page(as_owner, run, step=4), page(as_owner, run, step=4, tries=1)
    assert "Steps 4–6 were replayed by attempt 2." in hidden
    assert "Show the original attempt" in hidden
    assert "attempt 1, replayed" in both
    assert "Hide the original attempt" in both


@pytest.mark.feature(33)
def test_rollouts_of_a_multi_turn_completion_show_who_wrote_what(run: Run, as_owner: Client) -> None:
    text = "<search>é🦊</search><information>teal</information><answer>teal</answer>"
    parts = ["<search>é🦊</search>", "<information>teal</information>", "<answer>teal</answer>"]
    lengths = [len(part) for part in parts]
    turns = [Turn("assistant", 0, 1), Turn("tool", 1, 2), Turn("assistant", 2, 3)]
    arrays = {
        "ids": pack_ids([1, 2, 3]),
        "lengths": pack_array(lengths, "H"),
        "logprobs": pack_array([0.0] * 3, "e"),
        "entropies": pack_array([0.0] * 3, "e"),
    }
    store(run, started(), rollout(1, completion=text, turns=turns, mask=pack_array([1, 0, 1], "B"), **arrays))
    [card] = feed(run).groups[0].cards
    assert [(block.kind, block.text) for block in card.blocks] == [("call", parts[0]), ("environment", parts[1]), ("policy", parts[2])]
    assert 'class="environment"' in page(as_owner, run)


def test_what_a_model_wrote_is_text(run: Run, as_owner: Client) -> None:
    store(
        run,
        started(),
        rollout(
            1,
            completion=HOSTILE,
            reference=HOSTILE,
            prompt=[Message(HOSTILE, HOSTILE)],
            rewards={HOSTILE: 1.0},
            filtered=HOSTILE,
            finish_reason="stop",
        ),
    )
    body = page(as_owner, run)
    assert "<script>alert" not in body
    assert "<img src=x" not in body
    assert body.count("&lt;script&gt;alert(1)") == 6


@pytest.mark.feature(44)
def test_invisible_characters_are_named(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(1, completion="a\u202eb\u200b\x00c"))
    body = page(as_owner, run)
    assert "⟨U+202E⟩" in body
    assert "⟨U+200B⟩" in body
    assert "\u202e" not in body
    assert "␀" in body


def test_a_very_long_completion_is_cut_on_the_page_and_whole_on_request(run: Run, as_owner: Client) -> None:
    text = "0123456789" * 20_000
    store(run, started(), *(rollout(1, 0, sample, completion=text, length=200_000) for sample in range(8)))
    body = page(as_owner, run)
    assert len(body) < 200_000
    assert "Show all 200000 characters" in body
    key = Rollout.objects.filter(run=run).first()
    assert key is not None
    whole = as_owner.get(f"/rollouts/{key.pk}/tokens/", {"part": "text"}).content.decode()
    assert text in whole
    raw = as_owner.get(f"/rollouts/{key.pk}/tokens/", {"part": "raw"})
    assert raw.content.decode() == text
    assert raw.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert raw.headers["Content-Disposition"].startswith("attachment")


def test_the_tokens_of_a_page_come_in_one_answer(run: Run, as_owner: Client) -> None:
    store(run, started(), *(rollout(1, 0, sample) for sample in range(3)))
    ids = list(Rollout.objects.filter(run=run).values_list("pk", flat=True))
    found = as_owner.get(f"/runs/{run.pk}/tokens.json", {"ids": ",".join(map(str, ids))}).json()["rollouts"]
    assert sorted(one["id"] for one in found) == sorted(ids)
    assert found[0]["logprobs"] == [-0.5, -0.25, -1.0, 0.0]


def test_tokens_of_another_team_and_of_another_run_are_not_given(run: Run, team: Team, as_owner: Client, as_stranger: Client) -> None:
    store(run, started(), rollout(1))
    key = Rollout.objects.get(run=run).pk
    assert as_stranger.get(f"/rollouts/{key}/tokens/").status_code == 404
    assert as_stranger.get(f"/rollouts/{key}/tokens/", {"part": "raw"}).status_code == 404
    other = make_run(team)
    assert as_owner.get(f"/runs/{other.pk}/tokens.json", {"ids": str(key)}).json() == {"rollouts": []}


@pytest.mark.parametrize("ids", ["", ",", "x", "1,x,-2", "9" * 30, "1;DROP TABLE", "²"])
def test_mangled_ids_find_nothing(ids: str, run: Run, as_owner: Client) -> None:
    assert as_owner.get(f"/runs/{run.pk}/tokens.json", {"ids": ids}).json() == {"rollouts": []}


@pytest.mark.parametrize(
    "query",
    [
        {"step": "x"},
        {"step": "-1"},
        {"step": "99999999999999999999"},
        {"step": "٣"},
        {"phase": "'; --"},
        {"sort": "run__team"},
        {"tokens": "<b>"},
        {"after": "x.y"},
        {"after": "9999.9999"},
    ],
)
def test_a_mangled_address_still_shows_the_page(query: dict[str, str], run: Run, as_owner: Client) -> None:
    store(run, started(), *steps(1, 2))
    page(as_owner, run, **query)


def test_an_address_keeps_what_was_chosen(run: Run) -> None:
    store(run, started(), *steps(1, 3))
    chosen = feed(run, phase="train", step=2, sort="worst", tokens="entropy", tries=1).selection
    assert Selection.read(QueryDict(chosen.query()[1:])) == chosen
    assert "after" not in chosen.query()


@pytest.mark.feature(36)
def test_only_groups_without_variance_and_only_what_was_filtered_out(run: Run, as_owner: Client) -> None:
    rows = [(0, 0, 1.0, ""), (0, 1, 0.0, "too long"), (1, 0, 1.0, ""), (1, 1, 1.0, "no reward"), (2, 0, 1.0, "")]
    store(run, started(), *(rollout(1, group, sample, reward=reward, filtered=why) for group, sample, reward, why in rows))
    assert shape(feed(run, zero=1)) == [(1, [0, 1])]
    assert (shape(feed(run, filtered=1)), feed(run, filtered=1).total) == ([(0, [1]), (1, [1])], 2)
    assert feed(run, filtered=1).groups[0].count == 2  # its numbers are those of the whole group
    assert (shape(feed(run, filtered=1, zero=1)), feed(run, zero=1).total) == ([(1, [1])], 2)
    kept = feed(run, filtered=1, zero=1).selection
    assert Selection.read(QueryDict(kept.query()[1:])) == kept
    store(run, rollout(2), measured(2))
    assert "No results in step 2" in page(as_owner, run, step=2, filtered=1)
    assert "Every group of this step has reward variance" in page(as_owner, run, step=2, zero=1)


def test_a_filter_pages_over_what_it_shows(run: Run) -> None:
    store(run, started(), *(rollout(1, 0, sample, filtered="too long" if sample % 2 else "") for sample in range(2 * PAGE + 10)))
    first = feed(run, filtered=1)
    rest = read_feed(run, Selection.read(QueryDict(first.more[1:])))
    assert [len(found.groups[0].cards) for found in (first, rest)] == [PAGE, 5]
    assert rest.more == ""


@pytest.mark.feature(32)
def test_a_step_in_numbers(run: Run) -> None:
    rows = [
        (0, 0, 1.0, 10, 0.5, "stop"),
        (0, 1, 0.0, 30, None, "length"),
        (1, 0, 1.0, 20, 1.5, "stop"),
        (1, 1, 1.0, 20, 1.0, "stop"),
        (2, 0, None, 20, None, "stop"),
    ]
    made = [
        rollout(1, group, sample, reward=reward, length=length, mean_entropy=entropy, finish_reason=why)
        for group, sample, reward, length, entropy, why in rows
    ]
    store(run, started(), *made)
    found = summarize_step_rollouts(Rollout.objects.filter(run=run, step=1))
    assert (found.rollouts, found.groups, found.reward, found.length, found.entropy, found.cut) == (5, 3, 0.75, 20.0, 1.0, 0.2)
    assert (found.zero_groups, found.zero_variance, found.filtered) == (1, 0.5, 0)
    assert found.spread == pytest.approx(0.5)
    assert summarize_step_rollouts(Rollout.objects.none()).reward is None


def test_a_step_beside_the_charts_says_which_step_it_is(run: Run, as_owner: Client) -> None:
    store(run, started(), *steps(2, 2), *steps(5, 5))
    panel = page(as_owner, run, part="step", step=4)
    assert "Step 4 has no rollouts here. These are of step 2, the nearest before it." in " ".join(panel.split())
    assert f'href="/rollouts/?run={run.number}&amp;f=step:eq:2&amp;f=phase:is:train"' in panel
    assert "<html" not in panel
    assert "the nearest" not in page(as_owner, run, part="step", step=5)


def test_cards_and_groups_lead_to_their_pages(run: Run, as_owner: Client) -> None:
    store(run, started(), *steps(1, 1))
    body = page(as_owner, run)
    first = Rollout.objects.filter(run=run, group=1, sample=0).get()
    targets = (
        f"/rollouts/{first.pk}/",
        f"/runs/{run.pk}/groups/train/1/1/",
        f"/prompts/{first.prompt_id}/?run={run.number}",
        f"/runs/{run.pk}/what-if/?step=1&amp;group=1",
    )
    for target in targets:
        assert f'href="{target}"' in body


def test_cards_show_what_people_said(run: Run, owner: User, as_owner: Client) -> None:
    store(run, started(), *steps(1, 1))
    page(as_owner, run)  # the first request of a session is entered in the person's list of sessions
    with CaptureQueriesContext(connection) as before:
        page(as_owner, run)
    first, second = Rollout.objects.filter(run=run)[:2]
    verbs.tag_rollout(run.team, owner, first, "reward <b>hack</b>")
    verbs.rate_rollout(owner, second, "4")
    with CaptureQueriesContext(connection) as after:
        body = page(as_owner, run)
    assert "<bdi>reward &lt;b&gt;hack&lt;/b&gt;</bdi>" in body
    assert "mean rating of 1 person" in body
    assert body.count('class="rollout-said"') == 2
    assert len(after) == len(before)


def test_where_the_steps_of_a_run_lie(run: Run, as_owner: Client, as_stranger: Client) -> None:
    held = [event for step in (0, 4) for event in (rollout(step, phase="heldout"), measured(step, values={"heldout/reward": 0.5}))]
    store(run, started(), *held, *steps(1, 2), *steps(6, 6))
    address = f"/runs/{run.pk}/steps.json"
    found = as_owner.get(address, {"step": 3}).json()
    assert {name: found[name] for name in ("phase", "step", "first", "last", "before", "after")} == {
        "phase": "train", "step": 2, "first": 1, "last": 6, "before": 1, "after": 6,
    }  # fmt: skip
    assert (found["listed"], found["measured"], [one["name"] for one in found["phases"]]) == ([1, 2, 6], [0, 4], ["train", "heldout"])
    assert as_owner.get(address, {"phase": "heldout", "step": "x" * 9}).json()["step"] == 4
    assert as_stranger.get(address).status_code == 404


def test_an_empty_feed_says_when_rollouts_come(run: Run, as_owner: Client) -> None:
    assert "They appear here automatically as the policy samples them" in page(as_owner, run)
    Run.across_teams.filter(pk=run.pk).update(status=Status.FAILED)
    assert "This run ended before it sampled any rollouts" in page(as_owner, run)


def test_the_feed_reads_one_step_and_not_the_run(run: Run) -> None:
    store(run, started(), *steps(1, 2))
    with CaptureQueriesContext(connection) as few:
        feed(run, step=2)
    store(run, *steps(3, 60))
    with CaptureQueriesContext(connection) as many:
        feed(run, step=2)
    assert len(many) == len(few) <= 12
    assert not any(re.search(r"LIMIT 21|OFFSET [1-9]", query["sql"]) for query in many)


def test_signs_are_words_too() -> None:
    assert [format_signed_value(value) for value in (1.0, -0.5, 0.0, 0.123456)] == ["+1", "−0.5", "0", "+0.123"]


def test_a_card_says_its_rewards_by_name_and_sign(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(1, rewards={"correct": 1.0, "format": -0.5, "brevity": 0.0}, reward=0.5, advantage=-1.2))
    body = page(as_owner, run)
    for text in ("correct</bdi> +1", "format</bdi> −0.5", "brevity</bdi> 0"):
        assert text in body
    assert json.dumps(body)  # no lone surrogate reached the page


def test_a_member_that_was_asked_something_else_shows_what(run: Run, as_owner: Client) -> None:
    hinted = f"1 + 1? Hint: {HOSTILE}"
    store(run, started(), rollout(1, 0, 0, prompt=[Message("user", "1 + 1?")]), rollout(1, 0, 1, prompt=[Message("user", hinted)]))
    first, second = feed(run).groups[0].cards
    assert (first.own_prompt is None) != (second.own_prompt is None)
    shown = page(as_owner, run)
    assert shown.count(">asked<") == 1
    assert HOSTILE not in shown


def test_equal_answers_of_a_group_are_shown_once_with_what_differs(run: Run, as_owner: Client) -> None:
    long = "x" * 7000
    texts = ["<answer>1</answer>", long + "a", "<answer>1</answer>", long + "b", long + "a"]
    store(run, started(), *(rollout(1, 0, sample, completion=text, reward=float(sample == 0)) for sample, text in enumerate(texts)))
    [group] = feed(run).groups
    assert [[card.rollout.sample for card in answer.cards] for answer in group.answers] == [[0, 2], [1, 4], [3]]
    assert [(answer.words, answer.differences) for answer in group.answers] == [
        ("2 of 5 in the group identical", ["reward 0 to 1"]),
        ("2 of 5 in the group identical", []),
        ("", []),
    ]
    body = page(as_owner, run)
    assert body.count("in the group identical") == 2
    assert "3 distinct" in body


def test_equal_answers_are_counted_among_the_shown_where_not_all_are(run: Run) -> None:
    store(run, started(), *(rollout(1, 0, sample, filtered="too long" if sample else "") for sample in range(3)))
    [group] = feed(run, filtered=1).groups
    assert ([answer.words for answer in group.answers], group.distinct) == (["2 of 2 shown identical"], 0)


def test_the_same_words_to_another_prompt_or_of_another_author_are_another_answer(run: Run) -> None:
    tokens = {"ids": pack_ids([1, 2]), "lengths": pack_array([2, 2], "H")}
    turns = [Turn("assistant", 0, 1), Turn("tool", 1, 2)]
    asked = [Message("user", "Another?")]
    store(
        run, started(), *(rollout(1, 0, n, completion="abcd", **tokens, **more) for n, more in enumerate(({}, {"turns": turns}, {"prompt": asked})))
    )
    assert [len(answer.cards) for answer in feed(run).groups[0].answers] == [1, 1, 1]


def test_a_line_has_the_beginning_and_the_end_of_its_text(run: Run, as_owner: Client) -> None:
    store(
        run,
        started(),
        *(rollout(1, 0, n, completion=f"{n} begins" + " and" * length + " <answer>42</answer>\n ") for n, length in enumerate((1, 99, 9999))),
    )
    body = page(as_owner, run, layout="list")
    starts = re.findall(r'class="words-start">(\d begins)', body)
    ends = re.findall(r'class="words-end"><span><span>([^<]*)</span>', body)
    assert starts == ["1 begins", "2 begins"]  # the short one is whole
    assert [end.endswith("&lt;answer&gt;42&lt;/answer&gt;") for end in ends] == [True, True]


def test_the_layout_is_remembered_when_asked_to_and_a_shared_address_changes_nothing(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(1))
    assert "data-line" in page(as_owner, run, layout="list")
    assert "data-line" not in page(as_owner, run)
    assert as_owner.get(f"/runs/{run.pk}/rollouts/?layout=list&keep=1").headers["Location"] == f"/runs/{run.pk}/rollouts/?layout=list"
    assert "data-line" in page(as_owner, run)
    assert "data-line" not in page(as_owner, run, part="step")  # the panel beside the charts
    key = Rollout.objects.of(run.team).get().pk
    assert "<article" in as_owner.get(f"/rollouts/{key}/tokens/?part=card").content.decode()


@pytest.mark.parametrize("length", [0, 56, 57, 80, 111, 400, 5000])
def test_an_excerpt_leaves_nothing_out_unsaid_and_ends_as_its_text(length: int) -> None:
    text = "".join(chr(97 + place % 26) for place in range(length))
    excerpt = make_excerpt(text, whole_up_to=56)
    assert excerpt.start + excerpt.middle + excerpt.end == text
    assert bool(excerpt.end) == (length > 56)
    assert text.endswith(excerpt.end)
