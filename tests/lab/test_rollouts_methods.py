"""What methods did, on the rollouts page: the way to the advantage, tokens' own weights and advantages, context a method gave."""

from typing import Any

import numpy as np
import pytest
from django.test import Client

from lab.rollouts.trajectories.cards import build_advantage_stages
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.text_pieces import split_completion_blocks
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.lab.supervisor.spools import make_run, rollout, started, write
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Turn

STACK = {"recipe": "grpo", "training": {"trainer": "grpo"}, "base": {"name": "dr-grpo"}, "methods": [{"name": "siren"}, {"name": "rs-grpo"}]}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING, spec=STACK)


def store(run: Run, **fields: Any) -> Rollout:
    write(run.folder, [started(), rollout(advantage=0.9, **fields)])
    assert ingest_spool(run)
    return Rollout.objects.get(run=run)


def page(client: Client, run: Run, **query: Any) -> str:
    response = client.get(f"/runs/{run.pk}/rollouts/", query)
    assert response.status_code == 200
    return response.content.decode()


def test_the_way_to_the_advantage_is_in_the_order_of_the_recipe(run: Run, as_owner: Client) -> None:
    stored = store(run, contributions={"base": 0.1, "rs-grpo": 0.9, "siren": 0.4}, shaped={"siren": 2.5})
    found = [(stage.name, stage.reward, stage.advantage) for stage in build_advantage_stages(stored, ("siren", "rs-grpo"))]
    assert found == [("base", 1.0, 0.1), ("siren", 2.5, 0.4), ("rs-grpo", None, 0.9)]
    shown = page(as_owner, run)
    assert shown.index("<bdi>base</bdi>") < shown.index("<bdi>siren</bdi>") < shown.index("<bdi>rs-grpo</bdi>")


def test_methods_that_are_not_in_the_recipe_come_last_by_name(run: Run) -> None:
    stored = store(run, contributions={"base": 0.1, "zeta": 0.2, "alpha": 0.3, "siren": 0.4})
    assert [stage.name for stage in build_advantage_stages(stored, ("siren",))] == ["base", "siren", "alpha", "zeta"]


def test_a_rollout_no_method_touched_has_no_table(run: Run, as_owner: Client) -> None:
    stored = store(run, contributions={"base": 0.1})
    assert build_advantage_stages(stored, ("siren",)) == []
    assert "advantage was computed" not in page(as_owner, run)


def test_names_are_text(run: Run, as_owner: Client) -> None:
    store(run, contributions={"base": 0.1, HOSTILE: 0.2})
    shown = page(as_owner, run)
    assert HOSTILE not in shown
    assert "&lt;img src=x" in shown


def test_tokens_carry_weights_and_advantages_of_their_own_only_where_there_are_some(run: Run, as_owner: Client) -> None:
    stored = store(run, token_advantages=pack_array([0.5, -0.5, 0.25, 0.0], "e"), weights=pack_array([1.0, 2.0, 0.0, 1.0], "e"))
    found = as_owner.get(f"/rollouts/{stored.pk}/tokens/").json()
    assert (found["advantages"], found["weights"]) == ([0.5, -0.5, 0.25, 0.0], [1.0, 2.0, 0.0, 1.0])
    other = make_run(run.team, status=Status.RUNNING)
    plain = as_owner.get(f"/rollouts/{store(other).pk}/tokens/").json()
    assert not {"advantages", "weights"} & set(plain)


def test_arrays_of_another_length_are_said_and_not_shown(run: Run, as_owner: Client) -> None:
    stored = store(run, weights=pack_array([1.0, 2.0], "e"))
    assert "4 token ids but 2 weights" in as_owner.get(f"/rollouts/{stored.pk}/tokens/").json()["error"]


def test_tokens_can_be_coloured_by_what_methods_gave_them_in_a_run_with_methods(run: Run, as_owner: Client, team: Team) -> None:
    store(run)
    assert "Token advantage" in page(as_owner, run)
    other = make_run(team, status=Status.RUNNING)
    store(other)
    assert "Token advantage" not in page(as_owner, other)


@pytest.mark.parametrize("turns", [[("given", 0, 2), ("assistant", 2, 4)], [("given", 0, 4)]])
def test_context_a_method_gave_stands_apart_from_what_the_policy_wrote(turns: Any, run: Run, as_owner: Client) -> None:
    ids, lengths = pack_ids([1, 2, 3, 4]), pack_array([2, 2, 2, 2], "H")
    store(run, completion="aabbccdd", ids=ids, lengths=lengths, turns=[Turn(*turn) for turn in turns])
    given = "aabb" if len(turns) == 2 else "aabbccdd"
    assert f'<span class="given" title="added by a method as context; not in the loss">{given}</span>' in page(as_owner, run)


def test_given_text_is_never_thought_to_be_thinking() -> None:
    found = split_completion_blocks("<think>a</think>b", [["given", 0, 1], ["assistant", 1, 2]], np.array([16, 1]))
    assert [(block.kind, block.text) for block in found] == [("given", "<think>a</think>"), ("policy", "b")]
