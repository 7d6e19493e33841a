"""The page of one rollout: who may see it, where its keys lead, and the compact answer its tokens come in."""

import json
import struct
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from django.test import Client

from lab.rollouts.reading.rollout_links import build_rollout_walk
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.packed_rollout import pack_rollout
from lab.rollouts.trajectories.tokens import build_tokens_json
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import alternatives, make_run, rollout, started, steps, store
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message, Turn

TYPES = {"e": "<f2", "f": "<f4", "H": "<u2", "I": "<u4", "B": "<u1"}


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def opened(body: bytes) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """(header, text, arrays) of a packed answer, read as its docstring says."""
    (size,) = struct.unpack("<I", body[:4])
    header = json.loads(body[4 : 4 + size])
    rest = body[4 + size :]
    _, start, count = header["text"]
    assert (4 + size) % 8 == 0
    assert all(place[1] % 4 == 0 for place in header["arrays"].values())
    arrays = {name: np.frombuffer(rest, TYPES[code], number, offset) for name, (code, offset, number) in header["arrays"].items()}
    return header, rest[start : start + count].decode(), arrays


def one(run: Run, **fields: Any) -> Rollout:
    return Rollout.objects.get(run=run, **fields)


def ids(rows: Any) -> dict[tuple[int, int, int], int]:
    return {(row.step, row.group, row.sample): row.pk for row in rows}


def test_the_page_names_the_rollout_and_leads_to_its_group_prompt_and_step(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(3, 1, 2, advantage=-0.5, filtered="reward is NaN", reference="the <b>answer</b>"))
    found = one(run)
    html = as_owner.get(f"/rollouts/{found.pk}/").content.decode()
    for text in ("Step 3 · group 1 · sample 2", "correct</bdi> +1", "−0.5<", "excluded from the loss: reward is NaN", "&lt;b&gt;answer&lt;/b&gt;"):
        assert text in html
    for url in (
        f"/runs/{run.pk}/groups/train/3/1/",
        f"/prompts/{found.prompt_id}/",
        "rollouts/?phase=train&amp;step=3",
        "what-if/?step=3&amp;group=1",
    ):
        assert url in html


def test_held_out_rollouts_have_no_what_if(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(3, phase="heldout"))
    assert "what-if" not in as_owner.get(f"/rollouts/{one(run).pk}/").content.decode()


@pytest.mark.parametrize("path", ["", "packed/"])
def test_another_teams_rollout_and_impossible_ids_are_not_found(path: str, run: Run, as_owner: Client, as_stranger: Client) -> None:
    store(run, started(), rollout())
    url = f"/rollouts/{one(run).pk}/{path}"
    assert as_owner.get(url).status_code == 200
    assert as_stranger.get(url).status_code == 404
    assert as_owner.post(url).status_code == 405
    assert as_owner.get(f"/rollouts/{2**70}/{path}").status_code == 404
    assert as_owner.get(f"/rollouts/0/{path}").status_code == 404


@pytest.mark.parametrize(
    "list_", ["", "run=1", "?run=1&sort=-reward", "%00", "re=(", "after=nonsense&f=x:y:z", "&" * 5000, "run=99999999999999999999"]
)
def test_whatever_the_list_says_the_page_is_shown(list_: str, run: Run, as_owner: Client) -> None:
    store(run, started(), *steps(1, 2))
    assert as_owner.get(f"/rollouts/{one(run, step=1, group=0, sample=1).pk}/?list={quote(list_)}&token=-1&tokens=x&mode=%00").status_code == 200


def test_keys_walk_the_step_the_group_and_the_steps(run: Run, team: Team) -> None:
    store(run, started(), *steps(1, 3, groups=2, samples=2), rollout(2, 0, 9), rollout(2, 0, 0, phase="heldout"))
    at = ids(Rollout.objects.filter(run=run, phase="train"))
    way = build_rollout_walk(team, one(run, phase="train", step=2, group=0, sample=1), "")
    assert (way.before, way.after) == (at[2, 0, 0], at[2, 0, 9])
    assert (way.member_before, way.member_after) == (at[2, 0, 0], at[2, 0, 9])
    assert (way.step_before, way.step_after) == (at[1, 0, 1], at[3, 0, 1])
    last = build_rollout_walk(team, one(run, step=3, group=1, sample=1), "")
    assert (last.before, last.after, last.member_after, last.step_after) == (at[3, 1, 0], None, None, None)
    assert build_rollout_walk(team, one(run, step=2, group=0, sample=9), "").step_after == at[3, 0, 0]  # a step without that member: its first
    assert build_rollout_walk(team, one(run, step=2, group=0, sample=9), "").after == at[2, 1, 0]


def test_a_replayed_rollout_walks_among_those_of_its_attempt(run: Run, team: Team) -> None:
    store(run, started(), *steps(1, 2, groups=1, samples=2))
    store(run, started(attempt=2, from_step=0), *steps(1, 2, attempt=2, groups=1, samples=2))
    for attempt in (1, 2):
        at = ids(Rollout.objects.filter(run=run, attempt=attempt))
        way = build_rollout_walk(team, one(run, attempt=attempt, step=1, sample=0), "")
        assert (way.after, way.member_after, way.step_after) == (at[1, 0, 1], at[1, 0, 1], at[2, 0, 0])


def test_the_keys_follow_the_list_the_reader_came_from_and_keep_it(run: Run, team: Team, as_owner: Client) -> None:
    store(run, started(), *(rollout(step, 0, 0, reward=reward) for step, reward in ((1, 0.5), (2, 0.1), (3, 0.9))))
    at = ids(Rollout.objects.filter(run=run))
    listed = f"run={run.number}&sort=reward"
    way = build_rollout_walk(team, one(run, step=1), listed)
    assert (way.before, way.after) == (at[2, 0, 0], at[3, 0, 0])
    html = as_owner.get(f"/rollouts/{at[1, 0, 0]}/", {"list": listed}).content.decode()
    assert f"/rollouts/{at[3, 0, 0]}/?list=run%3D{run.number}%26sort%3Dreward" in html


def test_the_packed_answer_holds_the_text_and_every_stored_array(run: Run) -> None:
    text = "a🦊<think>x</think>é"
    arrays: dict[str, Any] = {
        "ids": pack_ids([7, 8, 9, 70_000, 2]),
        "lengths": pack_array([1, 0, 1, 17, 0], "H"),
        "logprobs": pack_array([-0.5, -0.25, -1.0, float("nan"), 0.0], "e"),
        "entropies": pack_array([0.5] * 5, "e"),
        "mask": pack_array([1, 1, 1, 1, 0], "B"),
        "reference_logprobs": pack_array([-1.0] * 5, "e"),
        "ratios": pack_array([1.0, 1.2, 0.8, 1.0, 1.0], "f"),
        "clipped": pack_array([0, 1, 0, 0, 0], "B"),
        "weights": pack_array([1.0, 2.0, 0.0, 1.0, 1.0], "e"),
        **alternatives(5),
    }
    store(run, started(special_tokens={2: "<|end|>"}), rollout(1, completion=text, **arrays))
    run.refresh_from_db()
    found = one(run)
    header, body, values = opened(pack_rollout(found, RolloutTokens.across_teams.get(), run.special_tokens))
    assert (body, header["total"], header["error"], header["special"]) == (text, 5, "", {"2": "<|end|>"})
    assert values["ids"].tolist() == [7, 8, 9, 70_000, 2]
    assert values["widths"].tolist() == [1, 0, 2, 17, 0]  # what a browser counts: a fox is two
    assert values["logprobs"][:3].tolist() == [-0.5, -0.25, -1.0]
    assert np.isnan(values["logprobs"][3])
    assert values["ratios"].tolist() == pytest.approx([1.0, 1.2, 0.8, 1.0, 1.0])
    assert values["clipped"].tolist() == [0, 1, 0, 0, 0]
    assert header["blocks"] == [["policy", "assistant", 0, 3], ["think", "assistant", 3, 19], ["policy", "assistant", 19, 20]]
    assert set(header["reasons"]) == {"advantage"}
    assert header["alternatives"] == {"k": 2, "texts": {"1": "the", "2": "\n", "3": "a"}}
    assert (values["alternative_ids"].tolist(), values["ranks"].tolist()) == ([1, 3, 1, 3, 1, 3, 1, 3, 1, 2], [1, 2, 5, 5, 5])
    assert values["alternative_logprobs"].tolist() == pytest.approx([-0.6931, -1.3863] * 5, abs=1e-3)
    assert values["sampler_logprobs"].tolist() == [-0.75] * 5


@pytest.mark.feature(42)
def test_a_rollout_without_alternatives_says_so_only_where_the_run_records_some(run: Run) -> None:
    store(run, started(), rollout(1))
    assert opened(pack_rollout(one(run), one(run).tokens, {}))[0]["alternatives_missing"] == ""
    Run.across_teams.filter(pk=run.pk).update(spec=run.spec | {"telemetry": {"alternatives_share": 0.1}})
    header = opened(pack_rollout(one(run), one(run).tokens, {}))[0]
    assert (header["alternatives"], header["alternatives_missing"]) == (None, "Alternatives not recorded for this rollout")
    assert header["reasons"]["sampler"] == "the sampler's log-probabilities were not recorded"


@pytest.mark.parametrize(
    "damage",
    [
        {"alternative_ids": pack_ids([1] * 7)},
        {"alternative_ids": pack_ids([1] * 84), "alternative_logprobs": pack_array([0.0] * 84, "e")},
        {"alternative_logprobs": b""},
        {"alternative_texts": b"tz\0"},
        {"ranks": pack_ids([1])},
    ],
)
def test_alternatives_that_do_not_fit_are_an_error_and_not_a_crash(run: Run, damage: dict[str, bytes]) -> None:
    store(run, started(), rollout(1, **alternatives() | damage))
    assert "cannot be read" in opened(pack_rollout(one(run), one(run).tokens, {}))[0]["error"]
    assert "cannot be read" in build_tokens_json(one(run), one(run).tokens, {})["error"]


def test_what_cannot_be_coloured_says_why(run: Run) -> None:
    store(run, started(), rollout(1, advantage=-1.25, logprobs=b"", entropies=b""), rollout(1, 0, 1, phase="heldout"))
    train, heldout = (one(run, phase=phase) for phase in ("train", "heldout"))
    why = opened(pack_rollout(train, train.tokens, {}))[0]["reasons"]
    assert why["kl"] == "this run has no reference policy"
    assert why["advantage"].endswith("the rollout's advantage, −1.25")
    assert {"entropy", "logprob", "ratio", "weight", "mask"} <= set(why)
    assert "only rollouts of training steps" in opened(pack_rollout(heldout, heldout.tokens, {}))[0]["reasons"]["kl"]


@pytest.mark.parametrize(
    ("changes", "error"), [({"ids": b"nonsense"}, "cannot be read"), ({"logprobs": pack_array([0.0], "e")}, "4 token ids but 1 logprobs")]
)
def test_damaged_arrays_leave_the_text(changes: dict[str, bytes], error: str, run: Run, as_owner: Client) -> None:
    store(run, started(), rollout())
    RolloutTokens.across_teams.update(**changes)
    header, text, arrays = opened(as_owner.get(f"/rollouts/{one(run).pk}/packed/").content)
    assert error in header["error"]
    assert (text, arrays, header["total"]) == ("<answer>7</answer>", {}, 0)


def test_a_rollout_without_tokens_is_only_text(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout())
    RolloutTokens.across_teams.all().delete()
    header, text, _ = opened(as_owner.get(f"/rollouts/{one(run).pk}/packed/").content)
    assert (header["error"], text) == ("this rollout came without tokens", "<answer>7</answer>")


@pytest.mark.parametrize("turns", [[Turn("tool", 3, 1), Turn("assistant", 2, 4)], [Turn("tool", 0, 99)], [Turn("tool", 2, 2)]])
def test_turns_that_make_no_sense_lose_no_text(turns: list[Turn], run: Run) -> None:
    store(run, started(), rollout(1, completion="abcdefghij", turns=turns))
    found = one(run)
    blocks = opened(pack_rollout(found, found.tokens, {}))[0]["blocks"]
    assert [blocks[0][2], blocks[-1][3]] == [0, 10]
    assert all(before[3] == after[2] for before, after in pairwise(blocks))


def test_hostile_text_is_text_in_the_page_and_whole_in_the_answer(run: Run, as_owner: Client) -> None:
    texts = [stored(text) for text in PAYLOADS]
    store(
        run,
        started(),
        *(
            rollout(
                1, group, completion=text, reference=text, prompt=[Message(text[:40] or "user", text)], rewards={text[:60]: 1.0}, filtered=text[:90]
            )
            for group, text in enumerate(texts)
        ),
    )
    for found in Rollout.objects.filter(run=run):
        response = as_owner.get(f"/rollouts/{found.pk}/")
        assert response.status_code == 200
        html = response.content.decode()
        assert "<script>window" not in html
        assert "<img src=x" not in html
        assert "\u202e" not in html
        _, text, _ = opened(as_owner.get(f"/rollouts/{found.pk}/packed/").content)
        assert text == texts[found.group]


def test_a_page_of_200_000_tokens_is_small_and_its_answer_is_compact(run: Run, as_owner: Client, django_assert_max_num_queries: Any) -> None:
    count = 200_000
    measured = np.linspace(0, 3, count)
    store(
        run,
        started(),
        rollout(
            1,
            completion="word " * count,
            ids=pack_ids(np.arange(count) % 50_000),
            lengths=pack_array(np.full(count, 5), "B"),
            logprobs=pack_array(-measured, "e"),
            entropies=pack_array(measured, "e"),
            length=count,
        ),
    )
    url = f"/rollouts/{one(run).pk}/"
    with django_assert_max_num_queries(16):
        assert len(as_owner.get(url).content) < 60_000
    assert len(as_owner.get(f"{url}packed/").content) < 3_000_000
