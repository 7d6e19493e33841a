"""What became of prompts: solved and unlearned, lost since a step, one prompt over runs, tenancy, hostile text."""

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from lab.rollouts.browse.indexing import index_all
from lab.rollouts.reading import history
from lab.rollouts.reading.history import PromptVisit, classify_prompt_state, find_turns, measure_pass_rate_loss
from lab.rollouts.reading.prompts import NEWEST_RUNS
from lab.rollouts.trajectories.models import Prompt
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Message

ASKED = [Message("user", "How many?")]


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def visit(step: int, passed: float) -> PromptVisit:
    return PromptVisit(step, 0, 4, passed, passed, 0.0, 1.0, 0.5, 4.0)


def path(*rates: float) -> list[PromptVisit]:
    return [visit(10 * place, rate) for place, rate in enumerate(rates)]


def answers(step: int, *correct: float | None, prompt: list[Message] = ASKED, **fields: Any) -> list[Any]:
    """One visit: an answer for each value of the reward function "correct"."""
    made = []
    for sample, value in enumerate(correct):
        rewards = {"correct": value, "format": 1.0}
        made.append(rollout(step, 0, sample, prompt=prompt, reference="3", rewards=rewards, reward=value or 0.0, **fields))
    return made


def words(*rates: float) -> list[str]:
    return [turn.words for turn in find_turns(path(*rates))]


@pytest.mark.feature(97)
@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((0.0, 0.5, 0.75), ["solved at 10"]),
        ((1.0, 1.0), ["solved at 0"]),
        ((0.0, 1.0, 0.0, 0.0), []),  # once is luck
        ((0.0, 1.0, 1.0, 0.0, 1.0), ["solved at 10"]),  # and so is one miss
        ((1.0, 1.0, 0.25, 0.0), ["solved at 0", "unlearned at 20"]),
        ((1.0, 1.0, 0.0, 0.0, 1.0, 1.0), ["solved at 0", "unlearned at 20", "solved at 40"]),
        ((0.0, 1.0), ["solved at 10?"]),  # nobody knows yet
        ((1.0, 1.0, 0.0), ["solved at 0", "unlearned at 20?"]),
        ((0.0, 0.49), []),
        ((), []),
    ],
)
def test_a_prompt_is_solved_and_unlearned_when_two_visits_agree(rates: tuple[float, ...], expected: list[str]) -> None:
    assert words(*rates) == expected


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=12))
def test_turns_alternate_and_only_the_last_visit_leaves_one_open(rates: list[float]) -> None:
    found = find_turns(path(*rates))
    assert [turn.solved for turn in found] == [place % 2 == 0 for place in range(len(found))]
    assert all(turn.confirmed or turn.step == 10 * (len(rates) - 1) for turn in found)
    if any(turn.confirmed for turn in found):
        assert classify_prompt_state(found) in ("solved", "unlearned")
    else:
        assert classify_prompt_state(found) == ("once" if found else "never")


def test_lost_since_a_step_compares_the_last_visit_before_with_all_after() -> None:
    found = measure_pass_rate_loss(path(0.0, 1.0, 0.5, 0.0), 10)
    assert found is not None
    assert (found.before, found.since, found.is_lost, found.amount) == (1.0, 0.25, True, 0.75)
    assert measure_pass_rate_loss(path(1.0, 1.0), 10) is None  # nothing after it
    assert measure_pass_rate_loss(path(1.0, 1.0), -1) is None  # nothing before it
    kept = measure_pass_rate_loss(path(1.0, 0.0, 1.0), 0)
    assert kept is not None
    assert not kept.is_lost  # 0.5 is not less than half


# One prompt.


def open_prompt(client: Client, **query: Any) -> Any:
    return client.get(f"/prompts/{Prompt.across_teams.get(text='How many?').pk}/", query)


def series(response: Any) -> dict[tuple[int, str], list[tuple[int, float]]]:
    return {
        (row["series"].run.number, row["series"].phase): [(one.step, one.passed) for one in row["series"].visits]
        for row in response.context["series"]
    }


@pytest.mark.feature(49)
def test_a_prompts_history_is_one_series_for_each_run_and_phase(as_owner: Client, team: Team, run: Run) -> None:
    other = make_run(team)
    store(run, started(), *answers(1, 1.0, 0.0), *answers(5, 1.0, 1.0), *answers(5, 0.0, phase="heldout"))
    store(other, started(), *answers(2, 0.0, 0.0, 0.0, 1.0))
    response = open_prompt(as_owner)
    assert series(response) == {(1, "train"): [(1, 0.5), (5, 1.0)], (1, "heldout"): [(5, 0.0)], (2, "train"): [(2, 0.25)]}
    assert response.context["answers"] == 9
    assert "solved at 1" in response.content.decode()
    data = json.loads(re.search(r'<script id="story-data"[^>]*>(.*?)</script>', response.content.decode(), re.DOTALL)[1])  # type: ignore[index]
    assert [data[0][name] for name in ("key", "step", "low", "high")] == ["1-train", [1, 5], [0.0, 1.0], [1.0, 1.0]]


def test_steps_that_were_replayed_do_not_count(as_owner: Client, run: Run) -> None:
    store(run, started(), *answers(1, 1.0), *answers(2, 1.0), started(2, from_step=1), *answers(2, 0.0, attempt=2))
    assert series(open_prompt(as_owner)) == {(1, "train"): [(1, 1.0), (2, 0.0)]}


def test_without_the_accuracy_the_total_reward_says_what_passes(as_owner: Client, team: Team) -> None:
    unknown = make_run(team, task="of-a-package")
    store(
        unknown,
        started(),
        *(
            rollout(1, 0, sample, prompt=ASKED, reference="3", rewards={"x": 0.0, "correct": None}, reward=reward)
            for sample, reward in enumerate((2.0, -1.0, None, 0.0))
        ),
    )
    assert series(open_prompt(as_owner)) == {(1, "train"): [(1, 0.25)]}


def test_the_best_and_the_worst_answer_ever_are_shown(as_owner: Client, run: Run) -> None:
    store(run, started(), *answers(1, 0.5, 1.0), *answers(2, 0.25, None))
    response = open_prompt(as_owner)
    assert (response.context["best"]["rollout"].reward, response.context["worst"]["rollout"].reward) == (1.0, 0.0)
    assert [one["rollout"].step for one in response.context["newest"]] == [2, 2, 1, 1]


def test_of_many_runs_the_newest_are_shown_those_that_were_named_and_all_when_asked(as_owner: Client, team: Team) -> None:
    runs = [make_run(team, status=Status.FINISHED) for _ in range(NEWEST_RUNS + 3)]
    for number, one in enumerate(runs):
        store(one, started(), *answers(1, number / 100))
    newest = set(range(4, NEWEST_RUNS + 4))
    for query, shown in (
        ({}, newest),
        ({"run": ["2", "2", "7", "nonsense", "99"]}, newest | {2}),
        ({"run": ["1", "3"]}, newest | {1, 3}),
        ({"runs": "all"}, newest | {1, 2, 3}),
    ):
        response = open_prompt(as_owner, **query)
        assert {number for number, _ in series(response)} == shown
        assert response.context["worst"]["rollout"].run.number == min(shown)
        assert (f"in {len(shown)} of 13 runs" in response.content.decode()) is (len(shown) < 13)
        tables = open_prompt(as_owner, **query, part="visits").content.decode()
        assert tables.count("<caption>") == len(shown)


def test_a_prompt_that_was_never_answered_says_so(as_owner: Client, team: Team) -> None:
    alone = Prompt.objects.create(team=team, digest=b"0" * 16, messages=[["user", "hm"]], text="hm")
    assert "No answers yet" in as_owner.get(f"/prompts/{alone.pk}/").content.decode()


# The prompts of a run and of the team.


def listed(client: Client, query: str) -> list[str]:
    return ["".join(piece.text for piece in row.text) for row in client.get(f"/prompts/{query}").context["rows"]]


@pytest.fixture
def lessons(run: Run) -> Run:
    """Four prompts at steps 1 to 4: kept, lost, half lost, never solved."""
    rates = {"kept": "1111", "lost": "1100", "half": "1110", "never": "0000"}
    events = [
        one
        for name, path_of in rates.items()
        for step, value in enumerate(path_of, 1)
        for one in answers(step, float(value), prompt=[Message("user", name)])
    ]
    store(run, started(), *events)
    return run


@pytest.mark.feature(97)
def test_prompts_lost_since_a_step_stand_by_how_much_was_lost(as_owner: Client, lessons: Run) -> None:
    assert listed(as_owner, "?run=1&since=2") == ["lost"]
    assert listed(as_owner, "?run=1&since=3") == ["half"]
    assert sorted(listed(as_owner, "?run=1&since=1")) == ["lost"]  # half passed in two of three since
    assert listed(as_owner, "?run=1&since=4") == []
    assert "No prompt was lost since step 4" in as_owner.get("/prompts/?run=1&since=4").content.decode()


def test_prompts_are_filtered_by_what_became_of_them(as_owner: Client, lessons: Run) -> None:
    assert sorted(listed(as_owner, "?run=1")) == ["half", "kept", "lost", "never"]
    assert sorted(listed(as_owner, "?run=1&state=solved")) == ["half", "kept"]
    assert listed(as_owner, "?run=1&state=unlearned") == ["lost"]
    assert listed(as_owner, "?run=1&state=never") == ["never"]
    assert listed(as_owner, "?run=1&sort=-now")[0] == "kept"


def test_a_prompt_asked_once_and_passed_is_not_counted_as_never_solved(as_owner: Client, run: Run) -> None:
    """Every prompt of a single epoch has one visit: its row says "solved at 1?", and so must the filter."""
    store(run, started(), *answers(1, 1.0, prompt=[Message("user", "passed")]), *answers(1, 0.0, prompt=[Message("user", "failed")]))
    assert listed(as_owner, "?run=1&state=once") == ["passed"]
    assert listed(as_owner, "?run=1&state=never") == ["failed"]
    assert listed(as_owner, "?run=1&state=solved") == []
    counts = {name: count for _, count, _, _, name in as_owner.get("/prompts/?run=1").context["states"]}
    assert counts == {"": 2, "solved": 0, "once": 1, "unlearned": 0, "never": 1}


def test_prompts_are_found_by_their_words(as_owner: Client, lessons: Run) -> None:
    index_all()
    found = as_owner.get("/prompts/?find=kept").context["rows"]
    assert ["".join(piece.text for piece in row["text"]) for row in found] == ["kept"]
    assert sorted(listed(as_owner, "?run=1&find=kept+or+lost")) == ["kept", "lost"]
    assert listed(as_owner, "?run=1&find=kept+or+lost&state=unlearned") == ["lost"]
    response = as_owner.get("/prompts/?run=1&find=kept")
    assert all("find=kept" in query for _, _, query, _, _ in response.context["states"])
    assert "No results" in as_owner.get("/prompts/?run=1&find=nowhere").content.decode()
    without = as_owner.get("/prompts/?find=...")
    assert "contains no word" in without.content.decode()
    assert len(without.context["rows"]) == 4


def test_a_long_list_comes_in_pages(as_owner: Client, run: Run) -> None:
    store(run, started(), *(one for number in range(120) for one in answers(1, 1.0, prompt=[Message("user", f"p{number}")])))
    pages = [listed(as_owner, f"?run=1&page={page}") for page in (1, 2, 3, 9)]
    assert [len(page) for page in pages] == [50, 50, 20, 20]
    assert len({text for page in pages for text in page}) == 120
    first = as_owner.get("/prompts/")
    older = as_owner.get(f"/prompts/{first.context['more']}")
    assert len(first.context["rows"]) == len(older.context["rows"]) == 50
    assert {row["prompt"] for row in first.context["rows"]}.isdisjoint(row["prompt"] for row in older.context["rows"])


def test_a_large_run_is_counted_from_its_newest_steps(as_owner: Client, lessons: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_ROLLOUTS", 8)
    response = as_owner.get("/prompts/?run=1")
    assert response.context["floor"] == 2
    assert all(row.first.step >= 2 for row in response.context["rows"])
    assert "Counted from step 2 on" in response.content.decode()


def test_a_wrong_step_is_named_and_the_list_still_shown(as_owner: Client, lessons: Run) -> None:
    response = as_owner.get("/prompts/?run=1&since=abc")
    assert len(response.context["rows"]) == 4
    assert "“abc” is not a step" in response.content.decode()
    assert "There is no run #7" in as_owner.get("/prompts/?run=7").content.decode()


@pytest.mark.parametrize(
    "query", ["?run=99999999999999", "?run=1&since=99999999999&state=x&sort=y&page=-1&phase=z", "?after=99999999999999999999", "?after=x"]
)
def test_what_the_address_does_not_offer_is_ignored(as_owner: Client, lessons: Run, query: str) -> None:
    assert as_owner.get(f"/prompts/{query}").status_code == 200


def test_another_teams_prompts_are_not_found(as_owner: Client, as_stranger: Client, run: Run) -> None:
    store(run, started(), *answers(1, 1.0))
    address = f"/prompts/{Prompt.across_teams.get().pk}/"
    assert as_owner.get(address).status_code == 200
    assert as_stranger.get(address).status_code == 404
    assert as_stranger.get("/prompts/").context["rows"] == []
    assert as_stranger.get("/prompts/?run=1").context["run"] is None
    assert Client().get(address).status_code == 302
    assert as_owner.post(address).status_code == 405
    assert as_owner.get("/prompts/99999999999999999999999/").status_code == 404


def test_hostile_text_stays_text(as_owner: Client, team: Team) -> None:
    run = make_run(team, name="</script><script>window.hostileRan=1</script>")
    texts = [stored(payload) for payload in PAYLOADS]
    store(run, started(), *(one for text in texts for one in answers(1, 1.0, prompt=[Message("user", text)], completion=text)))
    pages = [
        as_owner.get("/prompts/"),
        as_owner.get("/prompts/?run=1"),
        *(as_owner.get(f"/prompts/{prompt.pk}/") for prompt in Prompt.across_teams.all()),
    ]
    for page in pages:
        shown = page.content.decode()
        assert f"<script>window.{MARK}" not in shown
        assert "<img src=x" not in shown
        assert "<iframe" not in shown
        assert "\u202e" not in shown


def test_the_number_of_queries_does_not_grow(as_owner: Client, team: Team, run: Run) -> None:
    def queries(address: str) -> int:
        as_owner.get(address)
        with CaptureQueriesContext(connection) as found:
            assert as_owner.get(address).status_code == 200
        return len(found)

    store(run, started(), *answers(1, 1.0))
    address = f"/prompts/{Prompt.across_teams.get().pk}/"
    before = [queries(one) for one in (address, "/prompts/", "/prompts/?run=1")]
    store(make_run(team), started(), *(one for step in range(20) for one in answers(step, 1.0, 0.0)))
    store(run, *(one for step in range(2, 20) for one in answers(step, 1.0, prompt=[Message("user", f"{step}")])))
    after = [queries(one) for one in (address, "/prompts/", "/prompts/?run=1")]
    assert all(now <= then for then, now in zip(before, after, strict=True)), (before, after)
    assert max(after) <= 16


def test_a_prompts_history_is_read_by_its_index(run: Run) -> None:
    store(run, started(), *(one for step in range(1, 40) for one in answers(step, 1.0, prompt=[Message("user", f"{step % 7}")])))
    given = {"prompt": Prompt.across_teams.first().pk, "runs": [run.pk], "accuracy": history.encode_accuracy_names([run]), "most": 10}  # type: ignore[union-attr]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE trajectories_rollout")  # else what earlier tests left in it decides between indexes
        cursor.execute("SET LOCAL enable_seqscan = off")  # a table of few rows is read whole whatever indexes it has
        cursor.execute("EXPLAIN " + history.OF_PROMPT, given)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "rollout_prompt" in plan


def test_the_newest_answers_are_not_looked_for_along_the_primary_key(as_owner: Client, run: Run) -> None:
    store(run, started(), *(one for step in range(1, 300) for one in answers(step, 1.0, prompt=[Message("user", f"{step % 3}")])))
    address = f"/prompts/{Prompt.across_teams.order_by('pk')[0].pk}/"
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE trajectories_rollout")
        cursor.execute("SET LOCAL enable_seqscan = off")
    with CaptureQueriesContext(connection) as queries:
        as_owner.get(address)
    asked = [one["sql"] for one in queries if '"prompt_id" =' in one["sql"] and "trajectories_rollout" in one["sql"]]
    assert len(asked) >= 2
    for sql in asked:
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN " + sql.replace("%", "%%"), ())
            assert "trajectories_rollout_pkey" not in "".join(row[0] for row in cursor.fetchall()), sql
