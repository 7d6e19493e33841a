import math
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import msgspec
import pytest
from django.db import connection
from msgspec import structs

from lab.rollouts.browse.records import build_export_batches
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.rollouts.trajectories.turn_tree import read_turn_tree
from lab.supervision.supervisor import prompts
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs import metrics
from lab.training.runs.models import Attempt, LogChunk, Run
from tests.lab.supervisor.spools import (
    START,
    alternatives,
    assert_database_equals_spool,
    finished,
    make_run,
    measured,
    rollout,
    started,
    steps,
    write,
)
from trainers.contract import arrays, spool
from trainers.contract.events import Checkpoint, Message, Phase, RolloutNode, Saved, Turn, Warned


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team)


@pytest.fixture(autouse=True)
def no_remembered_prompts() -> None:
    prompts.forget_prompts()


def ingest_all(run: Run, limit: int = 1 << 20) -> int:
    count = 0
    while ingest_spool(run, limit):
        count += 1
    return count


def test_a_spool_becomes_rows_counters_and_points(run: Run) -> None:
    write(run.folder, [started(special_tokens={5: "<eos>"}), *steps(1, 10), finished()])
    assert ingest_all(run) == 1
    assert_database_equals_spool(run)
    assert (run.step, run.total_steps, run.attempt, run.tokens, run.rollouts) == (10, 10, 1, 1000, 80)
    assert run.special_tokens == {"5": "<eos>"}
    assert run.latest["reward"] == pytest.approx(1.0)
    assert run.latest["step_seconds"] == pytest.approx(1.0)
    attempt = Attempt.objects.get(run=run)
    assert (attempt.number, attempt.outcome, attempt.versions) == (1, "finished", {"trl": "1"})
    assert Prompt.across_teams.count() == 20
    again = Run.across_teams.get(pk=run.pk)
    assert (again.step, again.phase, again.latest) == (run.step, run.phase, run.latest)


def test_every_field_of_a_rollout_arrives_unchanged(run: Run) -> None:
    event = rollout(
        3,
        1,
        2,
        phase="heldout",
        prompt=[Message("system", "Sei kurz."), Message("user", "Frage? 🙂")],
        completion='Antwort\n\t🙂 \\u0041 "x" \'',
        rewards={"correct": 0.1, "format": None, "ümlaut": -2.5},
        reward=-1.25,
        advantage=0.5,
        mean_entropy=0.75,
        max_entropy=None,
        turns=[Turn("assistant", 0, 2), Turn("tool", 2, 4)],
        nodes=[
            RolloutNode(0, "prompt"),
            RolloutNode(
                1, "policy", 0, start=0, end=2, facts={"query": 'Wer? 🙂 "x"', "hits": [3, 4], "deep": {"a": [{}, None, 0.1]}}, notes={"q": 0.1}
            ),
            RolloutNode(2, "policy", 0, fate="cut", why="off the way", text="ü", reward=0.5),
        ],
        filtered="zero variance",
        finish_reason="turns",
        mask=arrays.pack_array([1, 1, 0, 0], "B"),
        **alternatives(),
    )
    write(run.folder, [started(), event])
    ingest_all(run)
    row = Rollout.across_teams.select_related("prompt", "tokens").get()
    assert (row.run_id, row.attempt, row.step, row.group, row.sample, row.phase) == (run.pk, 1, 3, 1, 2, "heldout")
    assert (row.completion, row.rewards, row.reward, row.advantage) == (event.completion, event.rewards, -1.25, 0.5)
    assert (row.mean_entropy, row.max_entropy, row.length, row.finish_reason, row.filtered) == (0.75, None, 4, "turns", "zero variance")
    assert row.turns == [["assistant", 0, 2], ["tool", 2, 4]]
    assert row.nodes == msgspec.to_builtins(event.nodes)
    assert row.created_at.timestamp() == event.time
    assert row.spool_end == run.ingested
    assert (row.prompt.messages, row.prompt.text) == ([["system", "Sei kurz."], ["user", "Frage? 🙂"]], "Frage? 🙂")
    assert row.prompt.reference == event.reference
    assert bytes(row.prompt.digest) == prompts.digest_prompt(event)
    for name in ("ids", "lengths", "logprobs", "entropies", "mask", *alternatives()):
        assert bytes(getattr(row.tokens, name)) == getattr(event, name)
    assert arrays.unpack_array(bytes(row.tokens.ids)).tolist() == [1, 2, 3, 4]


def test_prompts_are_stored_once_per_team_and_apart_between_teams(run: Run, team: Team) -> None:
    other = make_run(team)
    elsewhere = make_run(Team.objects.create(name="E", slug="e"))
    for one in (run, other, elsewhere):
        write(one.folder, [rollout(1, 0, sample) for sample in range(4)])
        ingest_all(one)
        prompts.forget_prompts()
    assert Prompt.objects.filter(team=team).count() == 1
    assert Prompt.across_teams.count() == 2
    assert Rollout.objects.of(team).count() == 8


def test_a_remembered_prompt_whose_id_is_now_another_prompts_is_stored_anew(run: Run) -> None:
    """The database's machine died before the log was written: the prompt is lost, and its id went to the next one."""
    first, second = rollout(1, 0, 0), rollout(2, 1, 0)
    assert prompts.digest_prompt(first) != prompts.digest_prompt(second)
    write(run.folder, [first])
    ingest_all(run)
    taken = Prompt.across_teams.get()
    Prompt.across_teams.filter(pk=taken.pk).update(digest=prompts.digest_prompt(second))
    write(run.folder, [rollout(1, 0, 1)])
    ingest_all(run)
    newest = Rollout.objects.of(run.team).select_related("prompt").latest("pk")
    assert newest.prompt_id != taken.pk
    assert bytes(newest.prompt.digest) == prompts.digest_prompt(first)


@pytest.mark.django_db(transaction=True)
def test_only_the_ingests_own_commits_do_not_wait_for_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_setting() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            return str(cursor.fetchone()[0])

    inside = []
    store_points = metrics.append_metric_points
    monkeypatch.setattr(metrics, "append_metric_points", lambda *given: (inside.append(read_setting()), store_points(*given))[1])
    write(run.folder, [started(), measured(1)])
    ingest_all(run)
    assert (inside, read_setting()) == (["off"], "on")


def test_small_limits_give_the_same_rows_as_one_batch(run: Run) -> None:
    write(run.folder, [started(), *steps(1, 30), finished()])
    assert ingest_all(run, limit=3000) > 20
    assert_database_equals_spool(run)


def test_an_unfinished_line_waits_for_its_newline(run: Run) -> None:
    line = spool.encoder.encode(measured(1))
    write(run.folder, [started()], tail=line[:20])
    ingest_all(run)
    assert run.ingested == (run.folder / spool.SPOOL).stat().st_size - 20
    assert ingest_spool(run) is None
    with (run.folder / spool.SPOOL).open("ab") as file:
        file.write(line[20:] + b"\n")
    ingest_all(run)
    assert_database_equals_spool(run)
    assert run.step == 1


def test_of_two_ingestors_with_the_same_view_one_stores_and_the_other_writes_nothing(run: Run) -> None:
    write(run.folder, [started(), *steps(1, 5)])
    other = Run.across_teams.get(pk=run.pk)
    assert ingest_spool(run) is not None
    assert ingest_spool(other) is None
    assert other.ingested == run.ingested
    assert_database_equals_spool(run)


@pytest.mark.django_db(transaction=True)
def test_ingestors_racing_over_a_growing_spool_store_every_line_once(run: Run) -> None:
    write(run.folder, [started()])
    done = threading.Event()

    def work() -> None:
        mine = Run.across_teams.get(pk=run.pk)
        try:
            while ingest_spool(mine, 2000) or not done.is_set() or mine.ingested < (run.folder / spool.SPOOL).stat().st_size:
                pass
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(1, 40):
        write(run.folder, steps(step, step))
    done.set()
    for thread in threads:
        thread.join()
    assert_database_equals_spool(run)


INGESTOR = """
import sys, django
django.setup()
from lab.training.runs.models import Run
from lab.supervision.supervisor.ingest import ingest_spool
run = Run.across_teams.get(pk=sys.argv[1])
while ingest_spool(run, 4000):
    print(run.ingested, flush=True)
"""


@pytest.mark.django_db(transaction=True)
def test_an_ingestor_killed_between_batches_again_and_again_stores_every_line_once(team: Team, process_env: dict[str, str]) -> None:
    run = make_run(team)
    write(run.folder, [started(), *steps(1, 400), finished()])
    kills = 0
    for lines in (1, 3, 9, 4, 1):
        child = subprocess.Popen([sys.executable, "-c", INGESTOR, str(run.pk)], env=process_env, stdout=subprocess.PIPE)
        assert child.stdout
        for _ in range(lines):
            child.stdout.readline()
        time.sleep(0.004 * lines)  # anywhere in a transaction
        child.kill()
        child.wait()
        child.stdout.close()
        kills += child.returncode == -signal.SIGKILL
        run.refresh_from_db()
    assert kills == 5
    assert 0 < run.ingested < (run.folder / spool.SPOOL).stat().st_size
    ingest_all(run)
    assert_database_equals_spool(run)


@pytest.mark.django_db(transaction=True)
def test_a_copy_that_fails_leaves_neither_rows_nor_offset_and_works_later(run: Run) -> None:
    write(run.folder, [started(), *steps(1, 3)])
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE trajectories_rollouttokens RENAME TO away")
        with pytest.raises(Exception, match="does not exist"):
            ingest_spool(run)
        cursor.execute("ALTER TABLE away RENAME TO trajectories_rollouttokens")
    assert (Rollout.across_teams.count(), Run.across_teams.get(pk=run.pk).ingested, run.ingested) == (0, 0, 0)
    ingest_all(run)
    assert_database_equals_spool(run)


@pytest.mark.django_db(transaction=True)
def test_a_remembered_prompt_that_is_gone_is_stored_again(run: Run, team: Team) -> None:
    write(run.folder, [rollout(1)])
    ingest_all(run)
    other = make_run(team)
    Rollout.across_teams.all().delete()
    Prompt.across_teams.all().delete()
    write(other.folder, [rollout(1), rollout(2)])
    ingest_all(other)
    assert Rollout.objects.filter(run=other).count() == 2
    assert Prompt.across_teams.count() == 2


BROKEN = [
    b"not json",
    b"",
    b'{"event":"from-the-future","attempt":1,"time":1.0}',
    b'{"event":"metrics","attempt":1,"time":1.0,"step":-3,"values":{}}',
    b'{"event":"metrics","attempt":1,"time":1e300,"step":1,"values":{}}',
    b'{"event":"phase","attempt":99999,"time":1.0,"name":"training"}',
    b'{"event":"checkpoint","attempt":1,"time":1.0,"step":1,"path":"../../etc/passwd","bytes":1}',
    b'{"event":"checkpoint","attempt":1,"time":1.0,"step":1,"path":"x","bytes":99999999999999999999}',
    b"[" * 5000,
    bytes(range(1, 10)),
]


def test_broken_lines_are_skipped_and_said_while_all_others_are_stored(run: Run) -> None:
    write(run.folder, [started()])
    for step, line in enumerate(BROKEN, 1):
        write(run.folder, steps(step, step), tail=line + b"\n")
    batch = ingest_spool(run)
    assert batch is not None
    assert len(batch.broken) == len(BROKEN)
    assert_database_equals_spool(run)
    notice = LogChunk.objects.get(run=run, notice=True)
    assert notice.text.count("was skipped") == len(BROKEN)


def test_a_line_that_only_the_database_refuses_is_skipped_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(run.folder, [started(), *steps(1, 20)])
    poison = msgspec.structs.replace(rollout(21), filtered="x", reward=1.0)
    write(run.folder, [poison, *steps(22, 25)])
    with connection.cursor() as cursor:  # a rule of the database that this side knows nothing of
        cursor.execute("ALTER TABLE trajectories_rollout ADD CONSTRAINT no_x CHECK (filtered <> 'x')")
        ingest_all(run)
    assert Rollout.objects.filter(run=run).count() == 24 * 8
    assert run.ingested == (run.folder / spool.SPOOL).stat().st_size
    assert "no_x" in LogChunk.objects.get(run=run, notice=True).text


def test_text_that_postgresql_cannot_hold_is_stored_as_the_contract_says(run: Run) -> None:
    raw = spool.encoder.encode(rollout(1, completion="aXb", rewards={"cX": 1.0})).replace(b"cX", b"c\\u0000")
    write(run.folder, [], tail=raw.replace(b"aXb", b"a\\u0000\\ud800b\\ud83d\\ude00") + b"\n")
    write(run.folder, [rollout(2, completion="x" * 200_000 + "<script>alert(1)</script>"), Warned(attempt=1, time=1.0, message="w\0")])
    ingest_all(run)
    first, second = Rollout.across_teams.order_by("step")
    assert first.completion == "a\u2400\ufffdb😀"
    assert first.rewards == {"c\u2400": 1.0}
    assert len(second.completion) == 200_025
    assert "w\u2400" in LogChunk.objects.get(run=run).text


FACTS = {
    b'{"q":"a\\u0000\\ud800b\\uD83D\\uDE00"}': {"q": "a\u2400\ufffdb😀"},
    b'{"q":NaN}': {"q": None},
    b"[1, 2]": [1, 2],
    b'{"q":"\\x"}': None,
    b'{"q":"\xff"}': None,
    b'{"q":"\x01"}': {"q": "\x01"},
    b'{"q":01}': None,
    b"[" * 5000: None,
}


@pytest.mark.parametrize(("given", "stored"), FACTS.items(), ids=range(len(FACTS)))
def test_what_a_world_said_of_a_turn_is_stored_as_it_stands_or_its_line_is_skipped_alone(run: Run, given: bytes, stored: Any) -> None:
    """Ingest does not take it apart: the database refuses what is no JSON."""
    raw = spool.encoder.encode(rollout(1, nodes=[RolloutNode(0, "policy", facts={"f": 1})]))
    assert raw.count(b'{"f":1}') == 1
    write(run.folder, [started()], tail=raw.replace(b'{"f":1}', given) + b"\n")
    write(run.folder, [rollout(2)])
    ingest_all(run)
    rows = list(Rollout.across_teams.order_by("step"))
    assert [row.step for row in rows] == ([2] if stored is None else [1, 2])
    assert LogChunk.objects.filter(run=run, text__contains="was skipped").exists() == (stored is None)
    if stored is not None:
        assert rows[0].nodes == [{"number": 0, "by": "policy", "facts": stored}]


NODES = {
    b"[5]": [],
    b'["x",{"number":1,"by":"world"}]': [{"number": 1, "by": "world"}],
    b'[{"number":"1","by":"world"}]': [],
    b'[{"number":1,"by":"policy","reward":"much"}]': [{"number": 1, "by": "policy", "reward": "much"}],
    b"7": None,
    b"[{}": None,
}


@pytest.mark.parametrize(("given", "exported"), NODES.items(), ids=range(len(NODES)))
def test_nodes_of_another_shape_cost_a_rollout_nothing_but_themselves(run: Run, given: bytes, exported: Any) -> None:
    raw = spool.encoder.encode(rollout(1, nodes=[RolloutNode(0, "policy")]))
    own = b'[{"number":0,"by":"policy"}]'
    assert raw.count(own) == 1
    write(run.folder, [started()], tail=raw.replace(own, given) + b"\n")
    write(run.folder, [rollout(2)])
    ingest_all(run)
    rows = list(Rollout.across_teams.select_related("run", "prompt").order_by("step"))
    assert [row.step for row in rows] == ([2] if exported is None else [1, 2])
    if exported is not None:
        assert [[record["nodes"] for record in batch] for batch in build_export_batches(rows[:1], tokens=False)] == [[exported]]
        assert set(read_turn_tree(rows[0], None).nodes) == {node["number"] for node in exported}


def test_values_without_a_number_are_kept_as_what_they_are(run: Run) -> None:
    event = measured(1, values={"reward": 0.5}, nonfinite={"loss": "nan", "kl": "-inf"})
    write(run.folder, [started(), event], tail=spool.encoder.encode(measured(2)).replace(b'"reward":0.2', b'"reward":NaN') + b"\n")
    ingest_all(run)
    series = metrics.read_metric_series(run.pk)
    assert math.isnan(series["loss"].values[0])
    assert series["kl"].values[0] == -math.inf
    assert math.isnan(series["reward"].values[1])
    assert run.latest["reward"] is None


def test_a_new_attempt_supersedes_the_steps_it_replays(run: Run) -> None:
    write(run.folder, [started(), *steps(1, 6), started(2, from_step=4), *steps(5, 8, attempt=2), started(3, 2), *steps(3, 3, attempt=3)])
    ingest_all(run)
    assert_database_equals_spool(run)
    assert run.rollouts == 3 * 8
    assert (run.attempt, run.step) == (3, 3)
    assert metrics.read_metric_series(run.pk)["loss"].steps.tolist() == [1, 2, 3]


def test_superseding_works_the_same_when_every_line_is_a_batch(run: Run) -> None:
    write(run.folder, [started(), *steps(1, 6), started(2, from_step=4), *steps(5, 8, attempt=2)])
    ingest_all(run, limit=1)
    assert_database_equals_spool(run)


def test_an_evaluation_repeated_after_a_resume_replaces_the_first(run: Run) -> None:
    heldout: dict[str, Any] = {"phase": "heldout"}
    write(run.folder, [started(), rollout(0, 0, **heldout), rollout(0, 1, **heldout), rollout(0, 0, phase="sampled")])
    ingest_all(run)
    write(run.folder, [started(2), rollout(0, 0, attempt=2, **heldout), rollout(0, 1, attempt=2, **heldout)])
    ingest_all(run)
    shown = Rollout.objects.filter(run=run).current().order_by("id").values_list("attempt", "phase")
    assert list(shown) == [(1, "sampled"), (2, "heldout"), (2, "heldout")]
    assert run.rollouts == 3


def test_a_cold_start_is_timed_over_all_attempts_and_is_in_no_pace(run: Run) -> None:
    def phase(name: str, at: float, attempt: int = 1) -> Phase:
        return Phase(attempt=attempt, time=START + at, name=name)

    first = [started(), *(phase("cold start", at) for at in (10, 30, 70)), phase("loading", 80)]
    second = [structs.replace(started(attempt=2), time=START + 500), *(phase("cold start", at, 2) for at in (510, 540))]
    write(run.folder, [*first, *second, measured(1, 2), measured(2, 2)])
    ingest_all(run, limit=3)
    assert run.latest["cold_start_seconds"] == pytest.approx(60 + 30)
    assert run.latest["step_seconds"] == pytest.approx(1.0)


def test_phases_checkpoints_and_warnings_are_recorded_once(run: Run) -> None:
    events = [
        started(),
        Phase(attempt=1, time=1.0, name="cold start", done=120, total=600),
        Checkpoint(attempt=1, time=1.0, step=5, path="checkpoints/checkpoint-5", bytes=100),
        Checkpoint(attempt=1, time=1.0, step=5, path="checkpoints/checkpoint-5", bytes=100),
        Saved(attempt=1, time=1.0, step=5, path="final", bytes=10),
        Warned(attempt=1, time=1.0, message="the reward is constant", step=5),
        Warned(attempt=1, time=1.0, message="still constant", step=6),
    ]
    write(run.folder, events)
    ingest_all(run)
    assert (run.phase, run.phase_done, run.phase_total) == ("cold start", 120, 600)
    assert sorted(run.checkpoints.values_list("path", "final")) == [("checkpoints/checkpoint-5", False), ("final", True)]
    assert LogChunk.objects.get(run=run).text == "warning (step 5): the reward is constant\nwarning (step 6): still constant\n"


def test_measurements_of_the_machine_share_the_step_of_the_batch(run: Run) -> None:
    write(run.folder, [started(), *steps(1, 3)])
    ingest_spool(run, samples={"system/cpu_percent": 50.0})
    assert metrics.read_metric_series(run.pk)["system/cpu_percent"].steps.tolist() == [3]


def test_lines_that_pages_have_already_take_no_measurements(run: Run) -> None:
    """The database lost its last commits: what is stored again at an offset that pages have reached would never be asked for."""
    write(run.folder, [started(), *steps(1, 3)])
    end = (run.folder / spool.SPOOL).stat().st_size
    ingest_spool(run, samples={"system/cpu_percent": 50.0}, reached=end)
    write(run.folder, steps(4, 5))
    assert "system/cpu_percent" not in metrics.read_metric_series(run.pk)
    ingest_spool(run, samples={"system/cpu_percent": 50.0}, reached=end)
    assert metrics.read_metric_series(run.pk)["system/cpu_percent"].steps.tolist() == [5]


def test_nothing_is_done_without_a_spool_or_with_nothing_new(run: Run, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert ingest_spool(run) is None
    write(run.folder, [started()])
    ingest_spool(run)
    with django_assert_num_queries(0):
        assert ingest_spool(run) is None


def test_a_deleted_run_is_left_alone(run: Run) -> None:
    write(run.folder, [started()])
    Run.across_teams.filter(pk=run.pk).delete()
    with pytest.raises(Run.DoesNotExist):
        ingest_spool(run)
    assert os.path.exists(run.folder / spool.SPOOL)
