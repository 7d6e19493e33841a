"""Full text: what is found, how far the index has come, and that indexing is exact, shared between workers and stopped by no text."""

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from lab.lib.processes import ManagedProcess
from lab.rollouts.browse import indexing, walk
from lab.rollouts.browse import words as search
from lab.rollouts.browse.indexing import index_all, index_batch
from lab.rollouts.browse.models import PromptWords
from lab.rollouts.browse.pages import Count, SearchProgress, filter_matching_rollouts, find_neighbour_ids, read_page
from lab.rollouts.browse.walk import Walk
from lab.rollouts.browse.words import WordPlan, plan_word_search
from lab.rollouts.trajectories.models import Rollout, RolloutWords
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.lab.browse.stored import ask, places
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Message


@pytest.fixture
def run(team: Team) -> Run:
    run = make_run(team)
    texts = ["We add seven and eight.", "We subtract; the Answer is 7", "<think>Übung</think> naïve 北京", "eight seven add we"]
    store(run, started(), *[rollout(step, 0, sample, completion=text) for step in (1, 2) for sample, text in enumerate(texts)])
    index_all()
    return run


@pytest.mark.feature(50)
@pytest.mark.parametrize(
    ("words", "samples"),
    [
        ("add", [0, 3]),
        ("ADD eight", [0, 3]),
        ('"seven and eight"', [0]),
        ("add -and", [3]),
        ("subtract or übung", [1, 2]),
        ("answer", [1]),
        ("北京", [2]),
        ("absent", []),
        ("-seven", [1, 2]),
        ("think", [2]),
        ("<think>", [2]),
        ("~run:1 ' \\ : & | ! ( ) <-> *", []),
    ],
)
@pytest.mark.parametrize("scope", ["run=1&", "", "sort=-length&"])
def test_words_in_web_search_syntax(run: Run, team: Team, scope: str, words: str, samples: list[int]) -> None:
    assert {sample for _, _, sample in places(team, f"{scope}q={words}")} == set(samples)


def test_no_words_of_a_person_reach_the_lexemes_that_narrow(run: Run, team: Team) -> None:
    for word in (f"~run:{run.pk.hex}", f"~team:{team.pk}", f"'~team:{team.pk}'", f'"~team:{team.pk}"', "~block:0"):
        assert places(team, f"q={word}") == [], word


def test_a_completion_cannot_pose_as_one_of_another_run(run: Run, team: Team, stranger: User) -> None:
    theirs = make_run(stranger.memberships.get().team)
    store(theirs, started(), rollout(1, completion=f"'~team:{team.pk}' ~run:{run.pk.hex} seven ~/~team:{team.pk}"))
    index_all()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM trajectories_rolloutwords WHERE words @@ %s::tsquery", [f"'~team:{team.pk}'"])
        assert cursor.fetchone()[0] == 8
    assert {row.run_id for row in read_page(team, ask("q=seven")).rows} == {run.pk}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, windows and probes so small that a few dozen rollouts go through every stage."""
    monkeypatch.setattr(walk, "WINDOW", 3)
    monkeypatch.setattr(walk, "PROBED_FIRST", 2)
    monkeypatch.setattr(walk, "PROBED", 6)
    monkeypatch.setattr(walk, "BLOCK", 4)
    monkeypatch.setattr(indexing, "BLOCK", 4)
    monkeypatch.setattr(walk, "SPANS", (1, 2))


ADDRESSES = [
    "q=rare",
    "q=common",
    "q=rare&f=reward:ge:0.5",
    "f=reward:ge:0.5",
    "run=1&q=rare",
    "run=1&q=common",
    "q=common&sort=-reward",
    "run=1&q=rare&sort=-reward",
    "run=1&q=common&sort=-reward",
]


@pytest.mark.parametrize("sorts_few", [True, False])
@pytest.mark.parametrize("address", ADDRESSES)
def test_every_stage_of_the_walk_finds_the_same_rollouts_in_order(
    team: Team, small: None, address: str, sorts_few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sorts_few``: the words are few enough to be sorted; otherwise every look at the index is cut off after its first match."""
    if not sorts_few:
        monkeypatch.setattr(walk, "CANDIDATES", 1)
    runs = [make_run(team) for _ in range(4)]
    for step in range(3):
        for number, run in enumerate(runs):
            events = [
                rollout(step, 0, sample, completion="common rare" if (step + number + sample) % 5 == 0 else "common", reward=(sample % 3) / 2)
                for sample in range(7)
            ]
            store(run, *events)
    index_all()
    found, cursor = [], ""
    while True:
        page = read_page(team, ask(address, cursor), 3)
        found += page.rows
        if not (cursor := page.next):
            break
    rows = [
        row
        for row in Rollout.across_teams.all()
        if ("rare" in row.completion or "q=rare" not in address) and ("run=1" not in address or row.run == runs[0])
    ]
    rows = [row for row in rows if "f=" not in address or row.reward >= 0.5]
    key = (lambda row: (-row.reward, -row.pk)) if "sort" in address else (lambda row: -row.pk)
    assert [row.pk for row in found] == [row.pk for row in sorted(rows, key=key)]
    count = read_page(team, ask(address)).count
    assert count == Count(len(rows), True) if sorts_few else not count.exact or count.number == len(rows)


@pytest.fixture
def counted_words(run: Run, team: Team, stranger: User) -> Team:
    """60 rollouts more of the team's and 10 of another's, and statistics of all: every one of these has "common", every tenth "rare"."""
    theirs = stranger.memberships.get().team
    for owner, count in ((team, 60), (theirs, 10)):
        texts = ["common rare" if number % 10 == 0 else "common" for number in range(count)]
        store(make_run(owner), started(), *[rollout(1, 0, number, completion=text) for number, text in enumerate(texts)])
    index_all()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE trajectories_rolloutwords")
    return theirs


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        ("rare", WordPlan("'rare'", True, True)),
        ("common rare", WordPlan("'rare'", True, False)),
        ("common", WordPlan("", False, False)),
        ("-rare", WordPlan()),
        ("rare or seven", WordPlan()),
        ('"common rare"', WordPlan()),
        ("common rare '", WordPlan("'rare'", True, False)),
        ("a b c d e f g h rare", WordPlan()),
    ],
)
def test_the_index_is_asked_for_the_rare_words_of_a_search(counted_words: Team, words: str, plan: WordPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "RARE_WORDS", 0.2)
    assert plan_word_search(words) == plan


@pytest.mark.parametrize("stored", [1, 10**9])
@pytest.mark.parametrize("words", ["rare", "common rare", "common", "rare -seven", '"common rare"'])
def test_a_team_finds_its_own_whether_it_has_most_rollouts_or_few(
    counted_words: Team, team: Team, words: str, stored: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "RARE_WORDS", 0.2)
    monkeypatch.setattr(walk, "LAST_ID", f"SELECT {stored}")
    for owner, all_of_them in ((team, 60), (counted_words, 10)):
        number = all_of_them if words == "common" else all_of_them // 10
        page = read_page(owner, ask(f"q={words}"))
        assert page.count == Count(number, True)
        assert {row.run.team_id for row in page.rows} == {owner.pk}
    assert read_page(team, ask("run=1&q=common rare")).count == Count(0, True)


def test_a_team_with_half_of_all_rollouts_has_most(run: Run, team: Team) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(id) FROM trajectories_rollout")
        newest = cursor.fetchone()[0]
    for stored, has_most in ((newest // 3, False), (-(-newest // 2), True)):
        Run.across_teams.filter(pk=run.pk).update(rollouts=stored)
        assert Walk.of(team, ask("q=rare")).has_most_rollouts is has_most
    assert not Walk.of(team, ask("run=1&q=rare")).has_most_rollouts


def test_matches_among_the_newest_rollouts_are_looked_up_once(run: Run, team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollout whose block the index was asked about is not opened for its words, and one that is still without them is no match."""
    monkeypatch.setattr(walk, "FREQUENT", 1)
    store(run, *[rollout(9, 0, sample, completion="add") for sample in range(5)])
    with CaptureQueriesContext(connection) as captured:
        assert len(read_page(team, ask("run=1&q=add")).rows) == 4
    assert not [query for query in captured.captured_queries if "ts_match_vq" in query["sql"]]


@pytest.mark.parametrize("scope", ["run=1&", "", "sort=-length&"])
def test_what_has_no_word_narrows_nothing_and_says_so(run: Run, team: Team, scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for probed in (1500, 2):
        monkeypatch.setattr(walk, "PROBED", probed)
        selection = ask(f"{scope}q=!!! (-)")
        page = read_page(team, selection)
        assert (len(page.rows), [problem.field for problem in page.problems]) == (8, ["q"])
        assert filter_matching_rollouts(team, selection).count() == 8
        assert find_neighbour_ids(team, selection, page.rows[3]) == (page.rows[2].pk, page.rows[4].pk)


def test_a_search_says_how_many_rollouts_it_cannot_find_yet(run: Run, team: Team) -> None:
    assert read_page(team, ask("q=add")).progress is None
    store(run, *[rollout(9, 0, sample, completion="add") for sample in range(5)])
    page = read_page(team, ask("q=add"))
    assert page.progress == SearchProgress(5)
    assert len(page.rows) == 4
    index_all()
    page = read_page(team, ask("q=add"))
    assert (page.progress, len(page.rows)) == (None, 9)


@pytest.mark.parametrize("near", [0, 4, 1000])  # ids among which the run's next rollout is looked for first: never, seldom and always there
def test_interleaved_runs_are_indexed_exactly_once_each(team: Team, monkeypatch: pytest.MonkeyPatch, near: int) -> None:
    for name, value in {"BATCH": 3, "WINDOW": 4, "NEAR": near}.items():
        monkeypatch.setattr(indexing, name, value)
    first, second = make_run(team), make_run(team)
    for step in range(6):
        store(first, *[rollout(step, 0, sample) for sample in range(5)])
        store(second, *[rollout(step, 0, sample) for sample in range(2 if step % 2 else 17)])
    index_all()
    assert RolloutWords.across_teams.count() == Rollout.across_teams.count() == 30 + 57
    for run in (first, second):
        run.refresh_from_db()
        assert run.searchable_to == run.last_rollout
    index_all()  # nothing to do


def test_a_batch_that_fails_leaves_neither_words_nor_progress(team: Team) -> None:
    run = make_run(team)
    store(run, *[rollout(1, 0, sample) for sample in range(5)])

    def killed() -> None:
        with transaction.atomic():
            assert index_batch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        killed()
    run.refresh_from_db()
    assert (run.searchable_to, RolloutWords.across_teams.count()) == (0, 0)


def test_a_text_that_is_too_much_for_the_index_is_found_by_its_beginning(team: Team) -> None:
    run = make_run(team)
    rare = [chr(0x20000 + index % 40_000) + chr(0x20000 + index // 3) for index in range(33_000)]
    texts = ["before", "beginning " + "-".join(rare), "after"]
    store(run, *[rollout(1, 0, sample, completion=text) for sample, text in enumerate(texts)])
    index_all()
    assert [places(team, f"q={word}") for word in ("before", "beginning", "after")] == [[(1, 0, 0)], [(1, 0, 1)], [(1, 0, 2)]]


def test_prompts_are_searched_by_their_last_user_message(team: Team) -> None:
    run = make_run(team)
    asked = [Message("system", "zebra"), Message("user", "How many horses?"), Message("assistant", "zebra")]
    store(run, rollout(1, 0, 0, prompt=asked), rollout(1, 1, 0))
    index_all()
    assert places(team, "f=prompt:contains:horses") == [(1, 0, 0)]
    assert places(team, "f=prompt:contains:zebra") == []
    assert PromptWords.across_teams.count() == 2


@pytest.mark.django_db(transaction=True)
def test_of_two_workers_one_indexes() -> None:
    team = Team.objects.create(name="T", slug="t")
    run = make_run(team)
    store(run, *[rollout(step, 0, sample) for step in range(40) for sample in range(5)])
    seen: list[int] = []

    def work() -> None:
        seen.append(index_batch())
        connection.close()

    with transaction.atomic():
        index_all()
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert seen == [0]
    assert RolloutWords.across_teams.count() == 200


@pytest.mark.django_db(transaction=True)
def test_a_worker_makes_rollouts_searchable_by_itself(start_process: Callable[..., ManagedProcess]) -> None:
    run = make_run(Team.objects.create(name="T", slug="t"))
    store(run, *[rollout(step, 0, sample) for step in range(10) for sample in range(5)])
    worker = start_process("indexer", "manage.py", "worker", "--queues", "nobody-asks", LAB_SWEEP_SECONDS="0.2")
    deadline = time.monotonic() + 240
    while run.searchable_to < run.last_rollout:
        assert time.monotonic() < deadline, worker.log.read_text()
        assert worker.exit_code is None, worker.log.read_text()
        time.sleep(0.1)
        run.refresh_from_db()
    assert RolloutWords.across_teams.count() == 50
