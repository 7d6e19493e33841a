"""The plans of the browser's queries where PostgreSQL has a choice: it never reads all rollouts, and what lists sort and filter by comes from
the index alone.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from lab.rollouts.browse import walk
from lab.rollouts.browse.histograms import compute_field_histograms
from lab.rollouts.browse.indexing import index_all
from lab.rollouts.browse.pages import find_neighbour_ids, read_page
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.browse.stored import ask
from tests.lab.supervisor.spools import make_run, rollout, started, store

RUNS, STEPS, GROUPS, SAMPLES = 6, 40, 8, 8

# Copies of a run's rollouts over many steps: the same columns as the ingest's, in a hundredth of its time.
COPIES = """
INSERT INTO trajectories_rollout (run_id, prompt_id, attempt, step, phase, group_index, sample, completion, turns, nodes, rewards, reward,
    contributions, shaped, advantage, length, mean_entropy, max_entropy, finish_reason, filtered, superseded, spool_end, created_at)
SELECT %s, prompt_id, 1, s, 'train', g, m, repeat('common text of a completion ', 20) || CASE WHEN s %% 20 = 0 AND m = 0 THEN ' rare' ELSE '' END,
    '[]', '[]', '{}', random(), '{}', '{}', random(), 10 + m, random(), random(), 'stop', '', false, 0, now()
FROM trajectories_rollout, generate_series(1, %s) AS s, generate_series(0, %s) AS g, generate_series(0, %s) AS m
WHERE run_id = %s AND step = 1000 ORDER BY s, g, m
"""


@pytest.fixture(scope="module")
def stored(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Six runs of 2,561 rollouts, vacuumed and analysed as autovacuum leaves them, which no transaction of a test could do."""
    with django_db_blocker.unblock(), override_settings(RUNS_ROOT=tmp_path_factory.mktemp("runs")):
        team = Team.objects.create(name="T", slug="plans")
        for _ in range(RUNS):
            run = make_run(team)
            store(run, started(), rollout(1000))
            with connection.cursor() as cursor:
                cursor.execute(COPIES, [run.pk, STEPS, GROUPS - 1, SAMPLES - 1, run.pk])
            newest = Rollout.across_teams.order_by("-pk").values_list("pk", flat=True)[0]
            Run.across_teams.filter(pk=run.pk).update(last_rollout=newest, rollouts=STEPS * GROUPS * SAMPLES + 1)
        index_all()
        with connection.cursor() as cursor:
            for table in ("trajectories_rollout", "trajectories_rolloutwords", "trajectories_prompt", "browse_promptwords"):
                cursor.execute(f"VACUUM (ANALYZE) {table}")
        yield team.slug
        call_command("flush", interactive=False, verbosity=0)


@pytest.fixture
def full(stored: str, db: None, monkeypatch: pytest.MonkeyPatch) -> Team:
    monkeypatch.setattr(walk, "PROBED", 100)  # as small beside the table as in a large one
    return Team.objects.get(slug=stored)


def plans(work: Callable[[], object]) -> list[str]:
    """The plan of each query that ``work`` makes."""
    with CaptureQueriesContext(connection) as captured:
        work()
    found = []
    with connection.cursor() as cursor:
        for query in captured.captured_queries:
            if re.match(r"\s*(SELECT|WITH)", query["sql"]) and "set_config" not in query["sql"]:
                cursor.execute("EXPLAIN " + query["sql"].replace("%", "%%"), [])
                found.append("\n".join(row[0] for row in cursor.fetchall()))
    return found


def test_no_page_reads_all_rollouts_and_lists_answer_from_the_index(full: Team) -> None:
    lists = [
        "run=2",
        "run=2&f=reward:ge:0.5&f=length:le:15",
        "run=2&f=reward:ge:0.9999",
        "run=2&sort=-reward",
        "run=2&f=zero_variance:is:yes&sort=length",
    ]
    searches = ["run=2&q=rare", "run=2&q=common&sort=-reward", "q=rare", "q=rare&f=reward:ge:0.5", "q=common"]
    others = [
        "",
        "f=reward:ge:0.9999",
        "run=2&f=tag:has:x",
        "run=2&f=filtered_out:is:yes",
        "f=prompt:contains:1000",
        "run=2&re=rare",
        "run=2&run=3&sort=reward",
    ]
    answered = 0
    for address in lists + searches + others:
        for plan in plans(lambda address=address: read_page(full, ask(address))):
            assert not re.search(r"Seq Scan on trajectories_rollout\b", plan), f"{address}\n{plan}"
            if address in lists and "Index Cond: (run_id" in plan:
                assert "Index Only Scan" in plan, f"{address}\n{plan}"
                answered += 1
    assert answered >= len(lists)


def test_searches_start_from_the_index_on_words(full: Team) -> None:
    for address in ("run=2&q=rare", "q=rare", "q=rare&sort=-reward", "run=2&q=rare&f=reward:ge:0.5", "run=2&q=common&sort=reward"):
        found = [plan for plan in plans(lambda address=address: read_page(full, ask(address))) if "@@" in plan]
        assert found, address
        for plan in found:
            assert "Bitmap Index Scan on rollout_words" in plan, f"{address}\n{plan}"


def test_words_blocks_and_runs_are_conditions_of_their_own(full: Team) -> None:
    """Inside one tsquery the scan looks at every rollout of a block or a run."""
    for address, lexeme in (("q=rare", "~block"), ("run=2&q=rare", "~run"), ("q=common", "~block"), ("q=common -rare", "~team")):
        found = [
            plan for plan in plans(lambda address=address: read_page(full, ask(address))) if lexeme in plan and "Index Scan on rollout_words" in plan
        ]
        assert found, address
        for plan in found:
            assert re.search(rf"Index Cond: \(\(words @@ .*\) AND \(words @@ [^@]*{lexeme}", plan), f"{address}\n{plan}"


def test_of_frequent_words_as_many_are_counted_as_are_shown(full: Team) -> None:
    """In as many of the newest blocks as it takes; a LIMIT does not end a scan of the index."""
    frequent, rare = (walk.Walk.of(full, ask(f"q={word}")) for word in ("common", "rare"))
    assert 1 <= frequent.choose_counted_blocks(1000) <= 2
    assert rare.choose_counted_blocks(1000) == 0
    assert frequent.choose_counted_blocks(100_000) == 0  # matches of blocks are looked at to CANDIDATES, which would not tell
    filtered = walk.Walk.of(full, ask("q=common&f=reward:ge:0.3"))
    assert filtered.choose_counted_blocks(1000) > frequent.choose_counted_blocks(1000)
    assert filtered.count(1000) == (1000, False)
    assert frequent.count(1000) == (1000, False)
    asked = [plan for plan in plans(lambda: walk.Walk.of(full, ask("q=common")).count(1000)) if "CTE matches" in plan]
    assert asked
    assert all("~block" in plan for plan in asked)
    assert rare.count(1000) == (RUNS * STEPS // 20 * GROUPS, True)


def test_matches_too_many_to_open_are_picked_out_of_the_run_as_its_index_is_read(full: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hashing their ids and not the run, which is a hundred times as much."""
    monkeypatch.setattr(walk, "LOOKUP_COST", 10_000)
    for address in ("run=2&q=rare", "run=2&q=rare&sort=-reward"):
        found = [plan for plan in plans(lambda address=address: read_page(full, ask(address))) if "= ANY ('{" in plan and "WindowAgg" in plan]
        assert len(found) == 1, address
        assert "Index Only Scan using rollout_listed" in found[0], found[0]
        assert "Hash" not in found[0], found[0]


def test_deep_pages_and_neighbours_start_where_they_are(full: Team) -> None:
    page = read_page(full, ask("run=2"))
    for _ in range(3):
        page = read_page(full, ask("run=2", page.next))
    for plan in [*plans(lambda: read_page(full, ask("run=2", page.next))), *plans(lambda: find_neighbour_ids(full, ask("run=2"), page.rows[3]))]:
        if "ROW(" in plan:
            assert re.search(r"Index Cond: .*ROW\(step, group_index, sample", plan), plan
            break
    else:
        pytest.fail("no plan compares rows")


def test_histograms_answer_from_the_index(full: Team) -> None:
    for plan in plans(lambda: compute_field_histograms(full, ask("run=2&f=advantage:ge:0.5"), ("reward", "length", "mean_entropy"))):
        if "trajectories_rollout" in plan:
            assert "Index Only Scan using rollout_listed" in plan, plan
