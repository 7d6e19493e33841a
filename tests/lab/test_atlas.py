"""The atlas: which rollouts it reads, what it averages, the tokens behind a cell, and how values are spread, each against a count by hand."""

import json
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from lab.rollouts.atlas.atlas_query import AtlasQuery
from lab.rollouts.atlas.distributions import COUNTS_SQL, compute_field_distribution, value_edges
from lab.rollouts.atlas.kinds import KINDS, kinds_of, zones_of
from lab.rollouts.atlas.sample import ROWS_SQL, draw_rollout_sample, sample_columns_evenly
from lab.rollouts.atlas.tokens import average_grid_cells, position_edges
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, measured, rollout, started, steps, store
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import AnyEvent


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def of_tokens(step: int, group: int, entropies: list[float], **fields: Any) -> AnyEvent:
    """A rollout of one-character tokens "abc…" with these entropies."""
    count = len(entropies)
    text = "abcdefghijklmnopqrstuvwxyz"[:count]
    arrays = {"ids": pack_ids(range(1, count + 1)), "lengths": pack_array([1] * count, "B"), "logprobs": pack_array([-1.0] * count, "e")}
    values = {"completion": text, "entropies": pack_array(entropies, "e"), **arrays, "length": count, **fields}
    return rollout(step, group, **values)


def answer(client: Client, run: Run, part: str, **query: Any) -> Any:
    response = client.get(f"/runs/{run.pk}/atlas/{part}", query)
    assert response.status_code == 200
    return response.json() if part.endswith(".json") else response.content.decode()


def kinds(text: str, *tokens: str, special: tuple[int, ...] = ()) -> list[str]:
    lengths = np.array([len(token) for token in tokens])
    found = kinds_of([text], [lengths], [np.isin(np.arange(len(tokens)), special)])
    return [KINDS[kind] for kind in found]


def test_a_token_is_what_its_first_character_that_is_no_space_is() -> None:
    tokens = ["Hel", "lo", " world", ",", " ", "\n\n", "4", "2", "x", "<", "think", ">", " é", "́", ""]
    assert kinds("".join(tokens), *tokens, special=(14,)) == [
        "word start", "word continuation", "word start", "punctuation", "white space", "line break", "digit", "digit", "word continuation",
        "punctuation", "word start", "punctuation", "word start", "word continuation", "special token",
    ]  # fmt: skip


def test_bytes_that_are_no_character_yet_are_parts_of_one() -> None:
    assert kinds("🦊a", "", "", "🦊", "a") == ["part of a character", "part of a character", "punctuation", "word start"]


def test_a_rollout_does_not_go_on_in_the_next_one() -> None:
    found = kinds_of(["ab", "cd", ""], [np.array([2]), np.array([1, 1]), np.array([0])], [np.zeros(1, bool), np.zeros(2, bool), np.ones(1, bool)])
    assert [KINDS[kind] for kind in found] == ["word start", "word start", "word continuation", "special token"]


@given(st.lists(st.text(max_size=4), max_size=12), st.integers(0, 3))
def test_any_text_has_a_kind_for_every_token(tokens: list[str], short: int) -> None:
    """Also where the lengths say more than there is text."""
    text = "".join(tokens)
    lengths = np.array([len(token) for token in tokens], dtype=np.int64)
    found = kinds_of([text[: max(0, len(text) - short)]], [lengths], [np.zeros(len(tokens), dtype=bool)])
    assert len(found) == len(tokens)
    assert set(found.tolist()) <= set(range(len(KINDS)))


def test_thinking_and_answer() -> None:
    one = np.ones(16, dtype=np.int64)
    found = zones_of(["<think>ab</think>c"[:18]], [np.array([7, 2, 8, 1])])
    assert found.tolist() == [1, 1, 1, 2]
    assert zones_of(["ab</think>c"], [np.array([2, 8, 1])]).tolist() == [1, 1, 2]  # the chat template opened it
    assert zones_of(["no thinking here"], [one]).tolist() == [0] * 16
    assert zones_of(["a<think>b"], [np.array([1, 7, 1])]).tolist() == [0, 1, 1]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=200), st.integers(1, 50))
def test_a_sample_takes_as_many_of_each_column(columns: list[int], most: int) -> None:
    where = np.array(columns)
    kept = sample_columns_evenly(where, most)
    assert len(set(kept.tolist())) == len(kept) <= max(most, 0) or len(columns) <= most
    assert kept.tolist() == sample_columns_evenly(where, most).tolist()
    taken, there = np.bincount(where[kept], minlength=7), np.bincount(where, minlength=7)
    full = taken == there
    if not full.all():  # where some were left out, nobody else got more than those columns
        assert taken.max() <= taken[~full].min()


@given(st.integers(1, 5000), st.sampled_from(["linear", "log"]))
def test_position_bins_cover_every_position_once(longest: int, scale: str) -> None:
    edges = position_edges(longest, scale)
    assert (edges[0], edges[-1]) == (0, longest)
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 50


def test_a_mean_is_over_the_tokens_of_a_cell() -> None:
    cells = average_grid_cells(np.array([0, 0, 1]), np.array([0, 0, 1]), np.array([1.0, 2.0, 5.0]), (2, 2))
    assert cells.mean[0, 0] == 1.5
    assert cells.mean[1, 1] == 5.0
    assert np.isnan(cells.mean[0, 1])
    assert cells.count.tolist() == [[2, 0], [0, 1]]


def test_the_map_is_the_mean_entropy_of_each_step_and_position(run: Run, as_owner: Client) -> None:
    store(
        run,
        started(),
        of_tokens(1, 0, [1.0, 0.5]),
        of_tokens(1, 1, [2.0, 0.5, 0.25]),
        of_tokens(4, 0, [0.0, 4.0, 8.0], mask=pack_array([1, 0, 1], "B")),  # the second was written by the environment
        of_tokens(4, 1, [0.0], phase="heldout"),
        rollout(4, 2, entropies=b""),
    )
    found = answer(as_owner, run, "grid.json")
    assert (found["columns"], found["rows"]) == ([[1, 1], [4, 4]], [["0", 0, 0], ["1", 1, 1], ["2", 2, 2]])
    assert found["values"] == [[1.5, 0.0], [0.5, None], [0.25, 8.0]]
    assert found["counts"] == [[2, 1], [2, 0], [1, 1]]
    assert (found["used"], found["total"], found["tokens"]) == (3, 4, 7)
    surprise = answer(as_owner, run, "grid.json", of="surprise")
    assert surprise["values"][0][0] == 1.0
    assert answer(as_owner, run, "grid.json", phase="heldout")["columns"] == [[4, 4]]
    assert answer(as_owner, run, "grid.json", of="weight")["columns"] == []


def test_the_map_by_kind_of_token(run: Run, as_owner: Client) -> None:
    text = "<think>a 1</think>2"
    tokens = ["<think>", "a", " 1", "</think>", "2", ""]
    arrays = {"ids": pack_ids([5, 6, 7, 8, 9, 4]), "lengths": pack_array([len(one) for one in tokens], "B")}
    store(run, started(special_tokens={4: "<|end|>"}), rollout(1, completion=text, entropies=pack_array([0, 2, 1, 0, 3, 5], "e"), **arrays))
    found = answer(as_owner, run, "grid.json", by="class")
    got = {label: values[0] for (label, _, _), values in zip(found["rows"], found["values"], strict=True)}
    assert got == {"special token": 5, "digit": 2, "punctuation": 0, "word start": 2, "thinking": 0.75, "answer": 4}


def test_replayed_rollouts_are_left_out(run: Run, as_owner: Client) -> None:
    store(run, started(), of_tokens(1, 0, [1.0]), of_tokens(2, 0, [9.0]), started(attempt=2, from_step=1), of_tokens(2, 0, [3.0], attempt=2))
    assert answer(as_owner, run, "grid.json")["values"] == [[1.0, 3.0]]
    assert answer(as_owner, run, "values.json", field="length")["total"] == 2


def test_many_steps_share_columns_and_many_rollouts_are_sampled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.rollouts.atlas.columns.MOST", 4)
    store(run, started(total_steps=10), *(of_tokens(step, group, [float(step)]) for step in range(1, 11) for group in range(6)))
    sample = draw_rollout_sample(run, "train", [(1, 5), (6, 10)], most=20)
    assert (len(sample.ids), sample.total, np.bincount(sample.columns).tolist()) == (20, 60, [10, 10])
    found = compute_field_distribution(run, AtlasQuery(phase="train", field="length"))
    assert found["columns"] == [(1, 3), (4, 6), (7, 8), (9, 10)]
    assert found["counts"] == [[18, 18, 12, 12]]


def test_of_very_many_rollouts_a_share_is_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    store(run, started(), *(of_tokens(step, group, [1.0]) for step in (1, 2) for group in range(100)))
    monkeypatch.setattr("lab.rollouts.atlas.sample.SCANNED", 50)
    run.refresh_from_db()
    sample, found = draw_rollout_sample(run, "train", [(1, 1), (2, 2)]), compute_field_distribution(run, AtlasQuery(phase="train", field="length"))
    assert not sample.exact
    assert 20 <= len(sample.ids) <= 80  # one in four of 200
    assert (found["every"], found["total"]) == (4, len(sample.ids))
    assert len(draw_rollout_sample(run, "train", [(1, 1)]).ids) == 100  # a cell's column is read whole


def test_the_tokens_behind_a_cell_highest_first_in_context(run: Run, as_owner: Client) -> None:
    store(run, started(), of_tokens(1, 0, [0.1, 0.9, 0.3]), of_tokens(1, 1, [0.1, 0.2, 3.0]), of_tokens(2, 0, [9.0, 9.0, 9.0]))
    body = answer(as_owner, run, "tokens/", steps="1-1", positions="1-2")
    assert "4 tokens of 2 rollouts, mean 1.10" in " ".join(body.split())
    values = [part.split("<")[0] for part in body.split('class="token-value">')[1:]]
    assert values == ["3", "0.900", "0.300", "0.200"]
    assert '<span class="around">ab</span><mark>c</mark>' in body
    first = run.samples.get(step=1, group=1)
    assert f'href="/rollouts/{first.pk}/?tokens=entropy&amp;token=2"' in body
    assert "9</span>" not in body


def test_the_same_text_is_listed_once(run: Run, as_owner: Client) -> None:
    store(run, started(), *(of_tokens(1, group, [0.5, 0.25]) for group in range(4)))
    body = answer(as_owner, run, "tokens/", steps="1-1", positions="0-0")
    assert body.count("token-value") == 1
    assert "and 3 similar" in body


def test_hostile_text_is_text(run: Run, as_owner: Client) -> None:
    texts = [stored(text) for text in PAYLOADS]
    made = [of_tokens(1, group, [1.0], completion=text, lengths=pack_array([min(len(text), 60_000)], "H")) for group, text in enumerate(texts)]
    store(run, started(special_tokens={1: "<script>x</script>"}), *made)
    body = answer(as_owner, run, "tokens/", steps="1-1", positions="0-0").lower()
    for raw in ("<script", "<img", "<svg", "<iframe", "<b ", "\u202e", "\u200b"):
        assert raw not in body
    for shown in ("&lt;script&gt;", "⟨u+202e⟩"):
        assert shown in body


@pytest.mark.feature(30)
def test_values_are_spread_as_counted_by_hand(run: Run) -> None:
    rewards = {1: [0.0, 0.0, 1.0, 0.25], 3: [1.0, 1.0, None, 0.5]}
    store(run, started(), *(rollout(step, 0, sample, reward=reward) for step, row in rewards.items() for sample, reward in enumerate(row)))
    found = compute_field_distribution(run, AtlasQuery(phase="train", field="reward"))
    assert found["columns"] == [(1, 1), (3, 3)]
    assert [sum(row[column] for row in found["counts"]) for column in (0, 1)] == [4, 3]
    assert (found["counts"][0], found["counts"][-1], found["total"]) == ([2, 0], [1, 2], 7)
    assert found["mean"] == [pytest.approx(0.3125), pytest.approx(2.5 / 3)]
    assert found["quantiles"][1] == [pytest.approx(0.125), 1.0]
    assert [sum(row[column] for row in found["shares"]) for column in (0, 1)] == [pytest.approx(1, abs=1e-4)] * 2


@pytest.mark.parametrize(
    ("low", "high", "whole", "few"), [(0, 1, False, True), (-2.5, 7, False, False), (5, 40, True, False), (3, 3, True, True), (0.5, 0.5, False, True)]
)
def test_edges_go_around_all_values(low: float, high: float, whole: bool, few: bool) -> None:
    edges = value_edges(low, high, whole, few)
    assert edges == sorted(set(edges))
    assert edges[0] <= low
    assert edges[-1] > high if whole else edges[-1] >= high
    assert len(edges) <= 34


def test_the_index_alone_answers(run: Run) -> None:
    """The texts of a million rollouts are not read for a map."""
    store(run, started(), *steps(1, 3))
    asked = {"run": run.pk, "phase": "train", "first": 1, "last": 3, "every": 1, "firsts": [1], "edges": [0.0, 1.0]}
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        for sql in (ROWS_SQL, COUNTS_SQL.replace("{column}", "mean_entropy")):
            cursor.execute("EXPLAIN (FORMAT JSON) " + sql, asked)
            plan = json.dumps(cursor.fetchone()[0])
            assert "Index Only Scan" in plan
            assert "rollout_listed" in plan


PARTS = ("", "grid.json", "values.json", "tokens/?steps=1-2&positions=0-3")


@pytest.mark.parametrize("part", PARTS)
def test_another_team_sees_nothing(part: str, run: Run, as_stranger: Client) -> None:
    store(run, started(), rollout(1))
    assert as_stranger.get(f"/runs/{run.pk}/atlas/{part}").status_code == 404


GARBAGE = (
    "phase=x&of=<b>&by=1&scale=é&field=run__team",
    "step=99999999999999999999",
    "steps=9-1&positions=a-b",
    "steps=1-99999999999",
    "steps=0-2147483647&kind=nope",
)


@pytest.mark.parametrize("query", GARBAGE)
@pytest.mark.parametrize("part", ["", "grid.json", "values.json", "tokens/"])
def test_a_mangled_address_still_answers(part: str, query: str, run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(1))
    assert as_owner.get(f"/runs/{run.pk}/atlas/{part}?{query}").status_code == 200


def test_a_run_without_rollouts_says_so(run: Run, as_owner: Client) -> None:
    assert "No training rollouts yet" in answer(as_owner, run, "")
    assert answer(as_owner, run, "grid.json")["columns"] == []
    assert answer(as_owner, run, "values.json")["columns"] == []
    assert "No tokens in this cell" in answer(as_owner, run, "tokens/", steps="1-2")


def test_supervised_training_is_read_from_its_held_out_rollouts(team: Team, as_owner: Client) -> None:
    run = make_run(team, trainer="sft", spec={"recipe": "sft"})
    store(run, started(), rollout(0, phase="heldout"), measured(0, values={"heldout/reward": 0.5}))
    assert 'data-phase="heldout"' in answer(as_owner, run, "")
    asked = answer(as_owner, run, "", phase="train")
    assert "No training rollouts yet" in asked
    assert 'href="?phase=heldout"' in asked
