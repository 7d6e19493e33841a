"""PrefCleanBench: the card's numbers, the quirks that are corrected, and real data whose wrong labels are found."""

import json
import random
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainers.methods import pair_files
from trainers.methods.pairs.prefcleanbench import (
    Config,
    PrefCleanBench,
    instruction_difficulty,
    mark_easiest_pairs,
    mark_lowest_share,
    mark_outvoted_pairs,
    select_covering_rows,
    swap_pair_sides,
)

SIX = torch.full((4,), 6.0)


def test_the_worked_examples():
    assert instruction_difficulty(torch.tensor(-1.2), torch.tensor(-2.0)).item() == pytest.approx(0.4493, abs=1e-4)
    assert mark_lowest_share(torch.tensor([-2, 0.1, 3, 1]), 0.25).tolist() == [True, False, False, False]
    votes = torch.tensor([0.0, 2.0, 3.0, 6.0])
    assert mark_outvoted_pairs(votes, SIX, "all").tolist() == [True, False, False, False]
    assert mark_outvoted_pairs(votes, SIX, "maj").tolist() == [True, True, False, False]


def test_the_share_counts_within_the_pairs_it_ranks():
    """The first pair's IFD is above 1; of the four others the lowest quarter is the last one, not the one at its place among the four."""
    assert mark_easiest_pairs(torch.tensor([1.5, 0.9, 0.8, 0.7, 0.2]), 0.25).tolist() == [True, False, False, False, True]


def test_no_votes_no_verdict():
    nobody = torch.zeros(1)
    assert not mark_outvoted_pairs(nobody, nobody, "all").any()
    assert not mark_outvoted_pairs(nobody, nobody, "maj").any()


def test_tags_are_covered_and_then_filled():
    tags = [{"a"}, {"a", "b"}, {"b"}, {"c"}, {"a"}, set()]
    assert select_covering_rows(tags, 4, False, random.Random(0)) == [1, 3]
    filled = select_covering_rows(tags, 4, True, random.Random(0))
    assert len(filled) == len(set(filled)) == 4
    assert {1, 3} < set(filled)
    assert select_covering_rows(tags, 1, False, random.Random(0)) == [1]
    assert len(select_covering_rows(tags, 60, True, random.Random(0))) == 6


@given(st.sets(st.integers(-9, 9), min_size=1, max_size=12), st.floats(0, 0.99), st.randoms())
def test_the_lowest_share_does_not_depend_on_order_or_shift(scores, share, shuffle):
    scores = torch.tensor(sorted(scores), dtype=torch.double)
    order = list(range(len(scores)))
    shuffle.shuffle(order)
    bad = mark_lowest_share(scores, share)
    assert mark_lowest_share(scores[order] + 3, share).tolist() == bad[order].tolist()
    assert bad.sum() == int(len(scores) * share)


@settings(deadline=None)
@given(st.lists(st.floats(-4, 0), min_size=1, max_size=4))
def test_a_prompt_that_says_nothing_about_the_answer_has_difficulty_one(values):
    values = torch.tensor(values)
    assert torch.allclose(instruction_difficulty(values, values), torch.ones(len(values)))


def test_a_pair_swapped_twice_is_itself():
    row = pair_files.rows(1, flip_every=1)[0]
    once = swap_pair_sides(row)
    assert once["flipped"] is False
    assert {name: swap_pair_sides(once)[name] for name in row} == row


@pytest.mark.parametrize("cleaner", ["llm_judge_r", "llm_judge_f", "vote_all_r", "vote_maj_f", "ifd_r", "ifd_gap_f", "ins_tag_div"])
@pytest.mark.training
def test_cleaned_data_is_trained_on(tmp_path, two_steps, monkeypatch, cleaner):
    made = []
    monkeypatch.setattr(PrefCleanBench, "data", lambda self, rows, run, before=PrefCleanBench.data: made.append(before(self, rows, run)) or made[-1])
    dataset = pair_files.write(tmp_path, pair_files.rows(32, flip_every=4))
    first = two_steps("prefcleanbench", {"cleaner": cleaner, "budget": 16}, trainer="dpo", dataset=dataset, training__max_steps=1).steps[0]
    rows = made[-1]
    if cleaner.startswith(("llm_judge", "vote")):  # a verifier knows
        assert first["prefcleanbench/precision"] == first["prefcleanbench/recall"] == 1
        assert not any(row["flipped"] for row in rows)
        assert len(rows) == (24 if cleaner.endswith("_r") else 32)
    elif cleaner == "ifd_gap_f":
        assert sum("cleaned" in row for row in rows) == 6
    else:
        assert 0 < len(rows) < 32


@pytest.mark.training
def test_reward_models_are_policies_trained_on_preferences(tmp_path, two_steps):
    from tests.trainers.conftest import make_spec
    from trainers.attempt import train

    dataset = pair_files.write(tmp_path, pair_files.rows(16))
    model = pair_files.earlier_run(tmp_path, dataset, training__max_steps=4)
    noisy = pair_files.write(tmp_path, pair_files.rows(16, flip_every=4))
    first = two_steps("prefcleanbench", {"cleaner": "rw_gap_f", "share": 0.25, "folders": model}, trainer="dpo", dataset=noisy).steps[0]
    assert first["prefcleanbench/recall"] > 0.7
    spec = make_spec(tmp_path / "none", "dpo", methods=[{"name": "prefcleanbench", "config": {"cleaner": "rw_gap_f"}}], dataset=noisy)
    assert train.run_training(spec, tmp_path / "none") == train.REFUSED


def test_a_cleaner_without_effect_leaves_the_rows_alone():
    """p = 0: as its parent."""
    rows = pair_files.rows(4)
    method = PrefCleanBench(Config(cleaner="rw_gap_r", share=0.0))
    method.implicit_gaps = lambda rows: torch.zeros(1, len(rows))
    assert [{name: row[name] for name in rows[0]} for row in method.data(rows, None)] == rows


@contextmanager
def rater():
    """An endpoint that gives ten to worked answers and two to the others."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][0]["content"]
            content = "Score: 10" if "=" in question else "2"
            answer = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *parts):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.mark.training
def test_an_endpoint_may_judge(tmp_path, two_steps, monkeypatch):
    dataset = pair_files.write(tmp_path, pair_files.rows(16, flip_every=4))
    with rater() as url:
        monkeypatch.setenv("LAB_JUDGE_URL", url)
        config = {"cleaner": "llm_judge_f", "judge": "endpoint"}
        first = two_steps("prefcleanbench", config, trainer="dpo", dataset=dataset, training__max_steps=1).steps[0]
    assert first["prefcleanbench/precision"] == first["prefcleanbench/recall"] == 1
