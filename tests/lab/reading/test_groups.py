"""The group page and the groups of a step: order, where the advantages come from, the diff, neighbours, tenancy, hostile text."""

from typing import Any

import pytest
import torch
from django.db import connection
from django.db.models import Avg
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from lab.rollouts.annotations.models import Rating
from lab.rollouts.reading.advantage_steps import SCALES, AdvantageInputs, build_scaling_inputs, is_same_advantage
from lab.rollouts.reading.group_links import AROUND
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import Message
from trainers.contract.hyperparameters import GROUP_TRAINERS
from trainers.maths.advantages import compute_trl_advantages, z_score
from trainers.methods import registry
from trainers.methods.base import Base
from trainers.methods.bases.rloo import leave_one_out

FLOATS = st.floats(-10, 10, width=32)


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING, spec={"recipe": "grpo", "training": {"trainer": "grpo"}})


def members(rewards: list[float | None], step: int = 1, group: int = 0, **fields: Any) -> list[Any]:
    """A group with the advantages GRPO gives these rewards; None is an answer nobody scored."""
    known = torch.tensor([0.0 if reward is None else reward for reward in rewards])
    advantages = z_score(known, len(rewards)).tolist()
    return [
        rollout(step, group, sample, reward=reward, advantage=advantage, **fields)
        for sample, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True))
    ]


def open_group(client: Client, run: Run, query: str = "", step: int = 1, group: int = 0, phase: str = "train") -> Any:
    return client.get(f"/runs/{run.pk}/groups/{phase}/{step}/{group}/{query}")


def samples(response: Any) -> list[int]:
    return [member.card.rollout.sample for member in response.context["group"].members]


# The formula.


def recomputed(found: AdvantageInputs) -> list[float]:
    return [found.advantage(reward) for reward in found.rewards]


@pytest.mark.feature(46)
@given(st.lists(FLOATS, min_size=2, max_size=8), st.lists(FLOATS, min_size=2, max_size=8))
def test_advantages_worked_out_here_are_those_of_the_trainer(first: list[float], second: list[float]) -> None:
    size = min(len(first), len(second))
    rewards = [*first[:size], *second[:size]]
    expected = {name: compute_trl_advantages(torch.tensor(rewards), size, name) for name in ("group", "batch", "none")}
    expected["leave-one-out"] = leave_one_out(torch.tensor(rewards), size)
    assert set(expected) == set(SCALES)
    for name, tensor in expected.items():
        if name == "group" and torch.tensor(rewards).view(2, size).std(1).min() < 1e-3:
            continue  # single precision has no digits left to compare there
        for place in (0, 1):
            found = build_scaling_inputs(name, rewards[place * size : (place + 1) * size], rewards)
            assert found is not None
            for ours, theirs in zip(recomputed(found), tensor[place * size : (place + 1) * size].tolist(), strict=True):
                assert is_same_advantage(theirs, ours), (name, rewards)


def test_equal_rewards_give_exact_zeros() -> None:
    for name in SCALES:
        found = build_scaling_inputs(name, [0.1] * 7, [0.1] * 7)
        assert found is not None
        assert recomputed(found) == [0.0] * 7


def test_the_catalogue_says_the_scale_that_each_base_gives_to_trl() -> None:
    bases = [kind for _, kind in registry.built_in() if issubclass(kind, Base)]
    for kind in bases:
        chosen = kind().arguments().get("scale_rewards", "")
        assert kind.scale in SCALES if kind.trainer in GROUP_TRAINERS else kind.scale == ""
        assert kind.trainer != "grpo" or chosen == ("none" if kind.scale == "leave-one-out" else kind.scale), kind.card.name


# The page.


@pytest.mark.feature(45)
def test_members_stand_best_first_and_those_without_a_reward_last(as_owner: Client, run: Run) -> None:
    store(run, started(), *members([0.25, None, 1.0, 0.25]))
    assert samples(open_group(as_owner, run)) == [2, 0, 3, 1]


@pytest.mark.feature(46)
def test_stored_advantages_stand_beside_those_worked_out_from_the_rewards(as_owner: Client, run: Run) -> None:
    store(run, started(), *members([1.0, 0.0, 0.0, 1.0]))
    response = open_group(as_owner, run)
    assert not response.context["differing"]
    assert response.context["scale"] == SCALES["group"]
    assert "(1 − 0.5) / (0.5774 + 0.0001)" in response.content.decode()
    assert "+0.86588" in response.content.decode()


def test_an_advantage_that_its_rewards_do_not_give_is_pointed_out(as_owner: Client, run: Run) -> None:
    group = members([1.0, 0.0, 0.0, 1.0])
    group[1] = rollout(1, 0, 1, reward=0.0, advantage=0.5)
    store(run, started(), *group)
    response = open_group(as_owner, run)
    assert [member.card.rollout.sample for member in response.context["differing"]] == [1]
    assert "1 stored advantage differs" in response.content.decode()


@pytest.mark.parametrize(("base", "advantages"), [("dr-grpo", [0.75, -0.25, -0.25, -0.25]), ("rloo", [1.0, -1 / 3, -1 / 3, -1 / 3])])
def test_the_scale_is_that_of_the_runs_base(as_owner: Client, team: Team, base: str, advantages: list[float]) -> None:
    run = make_run(team, spec={"recipe": "grpo", "base": {"name": base}, "training": {"trainer": "grpo"}})
    rewards = [1.0, 0.0, 0.0, 0.0]
    store(run, started(), *(rollout(1, 0, place, reward=rewards[place], advantage=advantages[place]) for place in range(4)))
    response = open_group(as_owner, run)
    assert not response.context["differing"]
    assert response.context["given"].scale == ("none" if base == "dr-grpo" else "leave-one-out")


def test_a_scale_over_the_batch_is_taken_from_the_whole_step(as_owner: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.rollouts.reading.members.RolloutGroup.scale", "batch")  # no built-in base has it; bases of packages may
    rewards = [1.0, 0.0, 4.0, 0.0]
    advantages = compute_trl_advantages(torch.tensor(rewards), 2, "batch").tolist()
    made = [rollout(1, place // 2, place % 2, reward=rewards[place], advantage=advantages[place]) for place in range(4)]
    store(run, started(), *made, *members([9.0, 0.0], step=2), rollout(1, 0, 0, phase="heldout", reward=50.0))
    response = open_group(as_owner, run, group=1)
    assert response.context["given"].batch_std == pytest.approx(1.8930, abs=1e-4)
    assert not response.context["differing"]


def test_every_methods_contribution_is_shown_in_the_order_of_the_recipe(as_owner: Client, team: Team) -> None:
    spec = {"base": {"name": "grpo"}, "methods": [{"name": "zeta"}, {"name": "alpha"}], "training": {"trainer": "grpo"}}
    run = make_run(team, spec=spec)
    made = []
    for sample, (reward, shaped, base) in enumerate([(1.0, 3.0, 0.7070), (0.0, 1.0, -0.7070)]):
        contributions = {"base": base, "alpha": base * 3, "zeta": base * 2}
        made.append(rollout(1, 0, sample, reward=reward, advantage=base * 3, contributions=contributions, shaped={"zeta": shaped}))
    store(run, started(), *made)
    response = open_group(as_owner, run)
    group = response.context["group"]
    assert group.acting == ["zeta", "alpha"]
    assert group.shaping == ["zeta"]
    assert response.context["given"].mean == 2.0  # of the shaped rewards
    assert not response.context["differing"]
    text = response.content.decode()
    assert text.index("<bdi>zeta</bdi>") < text.index("<bdi>alpha</bdi>")


def test_a_base_that_works_out_the_advantages_itself_is_no_method_on_top_of_one(as_owner: Client, team: Team) -> None:
    run = make_run(team, spec={"base": {"name": "rloo"}, "training": {"trainer": "grpo"}})
    made = [
        rollout(1, 0, sample, reward=reward, advantage=own, contributions={"base": plain, "rloo": own})
        for sample, (reward, plain, own) in enumerate([(1.0, 0.5, 1.0), (0.0, -0.5, -1.0)])
    ]
    store(run, started(), *made)
    response = open_group(as_owner, run)
    assert response.context["group"].acting == []
    assert not response.context["differing"]
    assert "1 − 0<" in response.content.decode()  # its reward and the mean of the others


def test_what_people_said_stands_at_the_member(as_owner: Client, owner: User, run: Run) -> None:
    store(run, started(), *members([1.0, 0.0]))
    Rating.objects.create(rollout=Rollout.across_teams.get(sample=1), user=owner, value=4)
    found = open_group(as_owner, run).context["group"].members
    assert [member.annotations.rating for member in found] == [None, 4.0]


def test_a_base_that_the_catalogue_does_not_know_shows_only_what_is_stored(as_owner: Client, team: Team) -> None:
    run = make_run(team, spec={"base": {"name": "of-a-package"}, "training": {"trainer": "grpo"}})
    store(run, started(), *members([1.0, 0.0]))
    response = open_group(as_owner, run)
    assert response.context["given"] is None
    assert "not in the catalogue" in response.content.decode()


@pytest.mark.feature(48)
def test_a_group_without_variance_says_so_and_leads_to_one_with(as_owner: Client, run: Run) -> None:
    store(run, started(), *members([1.0, 1.0], 1, 0), *members([1.0, 0.0], 1, 1), *members([0.0, 0.0], 2, 0), *members([1.0, 0.0], 3, 4))
    response = open_group(as_owner, run)
    assert "gave no learning signal" in response.content.decode()
    assert response.context["with_variance"] == f"/runs/{run.pk}/groups/train/1/1/"
    assert open_group(as_owner, run, step=2).context["with_variance"] == f"/runs/{run.pk}/groups/train/3/4/"
    assert open_group(as_owner, run, step=1, group=1).context["with_variance"] == ""


def test_keys_lead_to_groups_of_the_step_and_to_the_same_prompt_of_other_steps(as_owner: Client, run: Run) -> None:
    asked = [Message("user", "again and again")]
    store(
        run,
        started(),
        *(
            rollout(step, group, reference="7", prompt=asked if group == 2 - step % 2 else [Message("user", f"{step} {group}")])
            for step in (1, 2, 3)
            for group in (1, 2, 5)
        ),
    )
    ways = {key: url for key, _, _, url in open_group(as_owner, run, "?view=diff", step=2, group=2).context["ways"]}
    here = f"/runs/{run.pk}/groups/train"
    assert ways == {"k": f"{here}/2/1/?view=diff", "j": f"{here}/2/5/?view=diff", "[": f"{here}/1/1/?view=diff", "]": f"{here}/3/1/?view=diff"}
    ways = {key: url for key, _, _, url in open_group(as_owner, run, step=1, group=5).context["ways"]}
    assert ways == {"k": f"{here}/1/2/", "j": "", "[": "", "]": f"{here}/2/5/"}


def test_what_a_resumed_attempt_replaced_can_still_be_read(as_owner: Client, run: Run) -> None:
    old = members([1.0, 0.0], 2)
    store(run, started(), *members([1.0, 0.0]), *old, started(2, from_step=1), *members([0.0, 0.0, 0.0], 2, attempt=2))
    response = open_group(as_owner, run, step=2)
    assert (response.context["attempt"], len(response.context["group"].rows)) == (2, 3)
    assert response.context["attempts"] == [(1, "?attempt=1")]
    replayed = open_group(as_owner, run, "?attempt=1", step=2)
    assert (replayed.context["replayed"], len(replayed.context["group"].rows)) == (True, 2)
    assert open_group(as_owner, run, "?attempt=77", step=2).context["attempt"] == 2


def test_words_that_differ_from_the_best_are_marked(as_owner: Client, run: Run) -> None:
    texts = ["the sum is 5", "the  sum is 6", "no idea"]
    store(run, started(), *(rollout(1, 0, sample, reward=1.0 - sample, advantage=0.0, completion=text) for sample, text in enumerate(texts)))
    shown = open_group(as_owner, run, "?view=diff&part=columns").content.decode()
    assert "<del>5</del><ins>6</ins>" in shown
    assert shown.count("compared with") == 1
    ignoring = open_group(as_owner, run, "?view=diff&space=ignore&with=1&part=columns").content.decode()
    assert "<del>6</del><ins>5</ins>" in ignoring
    assert "<del> </del>" not in ignoring


def test_heldout_answers_have_no_advantages(as_owner: Client, run: Run) -> None:
    store(run, started(), rollout(1, 0, 0, phase="heldout", advantage=None))
    assert "only evaluated" in open_group(as_owner, run, phase="heldout").content.decode()


def test_a_group_of_thousands_is_shown_in_pages(as_owner: Client, run: Run) -> None:
    store(run, started(), *(rollout(1, 0, sample, reward=float(sample), advantage=0.0) for sample in range(130)))
    response = open_group(as_owner, run, "?from=64")
    assert samples(response) == list(range(65, 1, -1))
    assert [current for _, _, current in response.context["pages"]] == [False, True, False]
    assert samples(open_group(as_owner, run, "?from=99999"))[0] == 129


def test_hostile_text_stays_text(as_owner: Client, run: Run) -> None:
    prompt = [Message("user", payload) for payload in PAYLOADS[:6]]
    payloads = [stored(payload) for payload in PAYLOADS]
    answers = [
        rollout(
            1, 0, place, reward=float(-place), advantage=0.1, completion=payload, prompt=prompt, reference=payload, rewards={payload[:60] or "x": 1.0}
        )
        for place, payload in enumerate(payloads)
    ]
    store(run, started(), *answers)
    for query in ("", "?view=diff", "?view=diff&space=ignore&with=3"):
        shown = open_group(as_owner, run, query).content.decode()
        assert f"<script>window.{MARK}" not in shown
        assert "<img src=x" not in shown
        assert "<svg onload" not in shown
        assert "<iframe" not in shown
        assert "\u202e" not in shown
        assert "⟨U+202E⟩" in shown
    assert "<script>window" not in as_owner.get(f"/runs/{run.pk}/groups/").content.decode()


@pytest.mark.parametrize("path", ["groups/train/1/0/", "groups/"])
def test_another_teams_groups_are_not_found(as_owner: Client, as_stranger: Client, run: Run, path: str) -> None:
    store(run, started(), *members([1.0, 0.0]))
    assert as_owner.get(f"/runs/{run.pk}/{path}").status_code == 200
    assert as_stranger.get(f"/runs/{run.pk}/{path}").status_code == 404
    assert Client().get(f"/runs/{run.pk}/{path}").status_code == 302
    assert as_owner.post(f"/runs/{run.pk}/{path}").status_code == 405


@pytest.mark.parametrize("path", ["train/1/7/", "train/9/0/", "train/1/99999999999999999999/", "train/99999999999/0/", "nonsense/1/0/"])
def test_a_group_that_is_not_there_is_not_found(as_owner: Client, run: Run, path: str) -> None:
    store(run, started(), *members([1.0, 0.0]))
    assert as_owner.get(f"/runs/{run.pk}/groups/{path}").status_code == 404


def test_what_the_address_does_not_offer_is_ignored(as_owner: Client, run: Run) -> None:
    store(run, started(), *members([1.0, 0.0]))
    query = "?view=<b>&with=99999999999999&space=x&attempt=-1&from=99999999999&unknown=1"
    assert open_group(as_owner, run, query).status_code == 200
    assert as_owner.get(f"/runs/{run.pk}/groups/?step=abc&phase=x&sort=;drop&zero=7").status_code == 200


def test_the_number_of_queries_does_not_grow_with_the_members(as_owner: Client, run: Run) -> None:
    store(run, started(), *members([1.0, 0.0]), *members([1.0, 0.0] * 16, 2), *members([0.0] * 4, 3))
    counts = []
    for step in (1, 2, 3):
        open_group(as_owner, run, "?view=diff", step=step)
        with CaptureQueriesContext(connection) as queries:
            open_group(as_owner, run, "?view=diff", step=step)
        counts.append(len(queries))
    assert max(counts) <= 24, counts
    assert counts[0] - counts[1] in (-1, 0, 1)


# All groups of a step.


def test_the_groups_of_a_step_are_listed_sorted_and_filtered(as_owner: Client, run: Run) -> None:
    store(run, started(), *members([1.0, 1.0], 1, 0), *members([1.0, 0.0], 1, 1), *members([4.0, 0.0], 1, 2), *members([0.0], 2, 0))

    def listed(query: str) -> list[int]:
        return [row["group"] for row in as_owner.get(f"/runs/{run.pk}/groups/{query}").context["rows"]]

    assert listed("?step=1") == [0, 1, 2]
    assert listed("?step=1&sort=-std") == [2, 1, 0]
    assert listed("?step=1&sort=mean") == [1, 0, 2]
    assert listed("?step=1&zero=1") == [0]
    assert listed("") == [0]  # of the newest step
    assert "no group of step 2 has zero variance" in as_owner.get(f"/runs/{run.pk}/groups/?zero=1").content.decode().lower()


def test_a_run_without_rollouts_says_so(as_owner: Client, run: Run) -> None:
    assert "No groups yet" in as_owner.get(f"/runs/{run.pk}/groups/").content.decode()


def test_groups_are_found_by_the_index_of_the_run(run: Run) -> None:
    store(run, started(), *(one for step in range(1, 30) for one in members([1.0, 0.0], step)))
    rows = Rollout.objects.filter(run=run, step=3, phase="train", superseded=False)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # a table of few rows is read whole whatever indexes it has
        cursor.execute("ANALYZE trajectories_rollout")  # else what earlier tests left in it decides between the indexes
    assert "rollout_listed" in rows.filter(group=0).explain()
    assert "rollout_listed" in rows.values("group").annotate(mean=Avg("reward")).explain()
    given = {"run": run.pk, "phase": "train", "step": 3, "group": 0, "prompt": rows[0].prompt_id, "heldout": False}
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + AROUND, given)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "rollout_listed" in plan
    assert "Seq Scan" not in plan
