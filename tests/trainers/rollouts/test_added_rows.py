"""Episodes in training: one path is what it was before there were trees, and a rollout in several rows is trained as in one."""

import numpy as np
import pytest
import torch

from tests.trainers.conftest import current, events_in, fork_ranks, make_spec
from trainers.adapters.added_rows import build_row_batch, spread_members
from trainers.attempt import rank_processes, train
from trainers.catalog.describe import describe_method
from trainers.contract.arrays import unpack_array
from trainers.contract.events import Metrics, Rollout
from trainers.contract.stack_conflicts import fill_method_defaults, find_stack_problems
from trainers.methods import stack as stacks
from trainers.methods.base import Method
from trainers.methods.bases.dapo import DAPO
from trainers.methods.bases.grpo import GRPO
from trainers.methods.card import Card
from trainers.methods.session import Session
from trainers.methods.tokens.siren import SIREN
from trainers.policies import tiny
from trainers.policies.sampling import Sampler
from trainers.rollouts.compile import Row
from trainers.worlds.search import Search

CARD = Card("episodes", "Episodes", "", "", "dapo", "code", "", "core", "", ())
TIMES = ("speed/", "step_time", "rollouts/")


class Episodes(Method):
    """Every member an episode of one path."""

    card = CARD
    owns = frozenset({"rollout"})
    several_rows = True

    def rollout(self, session):
        return [leaf.episode for leaf in session.play([episode.root for episode in session.begin()])]


class GatedEpisodes(Episodes):
    """And one member in each group is left out."""

    roles = {"advantages": "gates"}

    def advantages(self, batch, advantages):
        return (torch.arange(len(advantages)) % batch.group_size != 1).to(advantages.dtype)


class Turns(Episodes):
    """And the tokens of turn k have k more."""

    roles = {"row_advantages": "maps"}

    def row_advantages(self, batch, advantages):
        self.log("turns", batch.turns().max() + 1)
        return advantages + batch.turns().clamp(min=0)


@pytest.fixture
def written_turns(monkeypatch):
    """Turns are written, not sampled: of every four members the first and the last search once, the second answers, the third does neither."""

    def sample_turn(self, made):
        for completion in made:
            number = len(completion.prompt_ids) + 3 * len(self.order)
            self.order.append(number)
            text = "<search>Eva's boss</search>" if number % 4 in (0, 3) else "<answer>Rome</answer>" if number % 4 == 1 else "Leo Leo Leo"
            if completion.ids:
                text = "<answer>Paris</answer>"
            ids = self.tokenizer.encode(text, add_special_tokens=False) + [self.tokenizer.eos_token_id] * (not text.endswith("</search>"))
            completion.add("assistant", ids, [-0.5] * len(ids), [0.5] * len(ids))

    monkeypatch.setattr(Sampler, "sample_turn", sample_turn)
    monkeypatch.setattr(Sampler, "order", [], raising=False)


def split_rows(session, made, compile_member=Session.compile):
    """A member in two rows with the same ids: of two turns and more the first is trained in one, the others in another."""
    completion, further = compile_member(session, made)
    row = completion.row
    if len(completion.turns) < 2 or (row.episode.group, row.episode.member) == (0, 3):  # so that their number is no multiple of the slices
        return completion, further
    middle = completion.turns[1].start
    halves = ([*row.mask[:middle], *[0] * (len(row.mask) - middle)], [*[0] * middle, *row.mask[middle:]])
    completion.mask = row.mask = halves[0]
    return completion, [Row(row.prompt_ids, row.ids, halves[1], row.nodes, row.episode, row.leaf, row.seat, row.peers, turns=row.turns)]


def train_world(folder, monkeypatch, method=None, run=train.run_training, **changes):
    monkeypatch.setattr(Sampler, "order", [], raising=False)
    spec = make_spec(
        folder,
        **{
            "task": {"name": "search", "difficulty": "easy", "rewards": {"format": 1.0}},
            "policy": {"kind": "folder", "path": str(tiny.ensure_untrained_policy(Search()))},
            "base": {"name": "dapo"},
            "training__max_steps": 2,
            "training__max_completion_length": 60,
            **changes,
        },
    )
    with monkeypatch.context() as patch:
        if method is not None:
            patch.setattr(stacks, "build_stack", lambda spec, build=stacks.build_stack: stacks.Stack(build(spec).base, [method()]))
        assert run(spec, folder) == train.FINISHED, events_in(folder)[-1]
    return events_in(folder)


def curves(events):
    return {(event.step, name): value for event in current(events, Metrics) for name, value in event.values.items() if not name.startswith(TIMES)}


def assert_same_training(one, other, but=()):
    left, right = curves(one), curves(other)
    assert left.keys() == right.keys()
    wrong = {key: (left[key], right[key]) for key in left if key[1] not in but and left[key] != pytest.approx(right[key], abs=2e-6, rel=2e-5)}
    assert not wrong
    assert any(value > 0 for (_, name), value in left.items() if name == "grad_norm")


def rollouts(events):
    return {(event.step, event.group, event.sample): event for event in current(events, Rollout)}


@pytest.mark.training
def test_episodes_of_one_path_are_todays_rollouts_and_trls_loss(tmp_path, monkeypatch, written_turns):
    plain = train_world(tmp_path / "plain", monkeypatch)
    trees = train_world(tmp_path / "trees", monkeypatch, Episodes)
    assert_same_training(plain, trees)
    left, right = rollouts(plain), rollouts(trees)
    assert left.keys() == right.keys()
    for key, event in left.items():
        other = right[key]
        for name in ("completion", "ids", "mask", "turns", "rewards", "advantage", "finish_reason", "lengths", "logprobs", "entropies"):
            assert getattr(event, name) == getattr(other, name), name
    assert {len(event.turns) for event in left.values()} >= {0, 3}


SPLITS = {
    "dapo": {},
    "cispo, KL, two passes, uneven slices": {
        "base": {"name": "cispo"},
        "training__beta": 0.05,
        "training__num_iterations": 2,
        "training__gradient_accumulation_steps": 2,
        "training__per_device_train_batch_size": 4,
    },
    "gated, four slices": {"training__gradient_accumulation_steps": 4, "training__per_device_train_batch_size": 4},
}
OF_ROWS = ("completions/mean_length", "completions/min_length", "completions/max_length", "num_tokens", "clip_ratio/low_min", "clip_ratio/high_max")
OF_LENGTHS = tuple(f"completions/{name}_terminated_length" for name in ("mean", "min", "max"))


@pytest.mark.training
@pytest.mark.parametrize("case", SPLITS)
def test_a_rollout_in_two_rows_has_the_gradient_of_the_rollout_in_one(tmp_path, monkeypatch, written_turns, case):
    method = GatedEpisodes if case.startswith("gated") else Episodes
    whole = train_world(tmp_path / "whole", monkeypatch, method, **SPLITS[case])
    with monkeypatch.context() as patch:
        patch.setattr(Session, "compile", split_rows)
        parts = train_world(tmp_path / "parts", monkeypatch, method, **SPLITS[case])
    means = () if case == "dapo" else ("entropy",)  # TRL's is a mean over slices, whatever they hold
    assert_same_training(whole, parts, but=(*OF_ROWS, *OF_LENGTHS, *means))
    found = [event.values["rollouts/rows"] for event in current(parts, Metrics) if "rollouts/rows" in event.values]
    assert found
    assert all(1 < value < 2 for value in found)
    left, right = rollouts(whole), rollouts(parts)
    assert left.keys() == right.keys()  # each rollout is reported once
    for key, event in left.items():
        assert np.allclose(unpack_array(event.logprobs), unpack_array(right[key].logprobs), atol=2e-3)
        assert event.advantage == pytest.approx(right[key].advantage, abs=1e-6)


@pytest.mark.training
def test_turns_have_advantages_of_their_own_and_they_are_reported(tmp_path, monkeypatch, written_turns):
    events = train_world(tmp_path, monkeypatch, Turns)
    several = [event for event in rollouts(events).values() if len(event.turns) == 3]
    assert several
    for event in several:
        values, (first, world, last) = unpack_array(event.token_advantages), event.turns
        base = event.contributions["base"]
        assert values[first.start : first.end] == pytest.approx([base] * (first.end - first.start), abs=2e-3)
        assert values[world.start : world.end] == pytest.approx(0)
        assert values[last.start : last.end] == pytest.approx([base + 1] * (last.end - last.start), abs=2e-3)
        assert event.contributions["episodes"] == pytest.approx(event.advantage)
    assert next(event.values["episodes/turns"] for event in current(events, Metrics) if "episodes/turns" in event.values) == 2


@pytest.mark.training
def test_two_ranks_train_added_rows_as_one_process_does(tmp_path, monkeypatch, written_turns):
    fork_ranks(monkeypatch)
    monkeypatch.setattr(Session, "compile", split_rows)
    made = []
    for count in (1, 2):
        run = train.run_training if count == 1 else rank_processes.run_on_ranks
        changes = {"resources__processes": count, "training__per_device_train_batch_size": 16 // count}
        made.append(train_world(tmp_path / str(count), monkeypatch, EachAlike, run, **changes))
    assert_same_training(*made, but=("clip_ratio/low_min", "clip_ratio/high_max"))
    assert rollouts(made[0]).keys() == rollouts(made[1]).keys()


class EachAlike(Episodes):
    """Turns by the member's number, which is the same however many processes there are."""

    def rollout(self, session):
        found = []
        for row, episode in enumerate(session.begin()):
            text = ("<search>Eva's boss</search>", "<answer>Rome</answer>", "Leo", "<search>Leo's boss</search>")[row % 4]
            node = session.force(episode.root, text, train=True, whole=not text.endswith("</search>"))
            leaf = node if node.finish else session.force(node, "<answer>Paris</answer>", train=True, whole=True)
            found.append(leaf.episode)
        return found


def test_several_rows_are_refused_where_a_rollout_would_count_by_its_rows():
    def problems(base, *methods):
        chosen = [fill_method_defaults("base", describe_method("bases", base), {})]
        chosen += [fill_method_defaults(f"methods.{place}", describe_method("group", kind), {}) for place, kind in enumerate(methods)]
        return [problem.message for problem in find_stack_problems(chosen)]

    assert not problems(DAPO, Episodes)
    (message,) = problems(GRPO, Episodes)
    assert "use dapo or cispo" in message
    assert any("knows the first one only" in message for message in problems(DAPO, Episodes, SIREN))


def test_further_rows_have_their_members_advantage_times_their_weight(make_session):
    session = make_session()
    torch.manual_seed(0)
    leaves = session.play([episode.root for episode in session.begin([0, 1])])
    parts = [session.compile(leaf.episode) for leaf in leaves]
    first = [completion.row for completion, _ in parts]
    width = max(len(row.ids) for row in first)
    mask = torch.tensor([row.mask + [0] * (width - len(row.mask)) for row in first], dtype=torch.float32)
    ids = torch.tensor([row.ids + [0] * (width - len(row.ids)) for row in first])

    class Sampled:
        group_size = 2

    rollout = Sampled()
    rollout.ids, rollout.mask = ids, mask
    again = Row(first[1].prompt_ids, first[1].ids * 2, first[1].mask * 2, first[1].nodes * 2, first[1].episode, leaves[1], "judge", "0/judge", 0.5)
    batch = build_row_batch(rollout, first, [(1, again)])
    assert batch.members.tolist() == [0, 1, 1]
    assert batch.is_first.tolist() == [True, True, False]
    assert batch.seats == ["policy", "policy", "judge"]
    assert batch.peers == ["0/policy", "0/policy", "0/judge"]
    assert torch.equal(batch.nodes[2, : len(first[1].ids)], batch.nodes[1, : len(first[1].ids)])
    assert not set(batch.nodes[0].tolist()) & set(batch.nodes[1].tolist()) - {-1}
    values = spread_members(torch.tensor([1.0, -2.0]), batch)
    assert values[0].sum() == mask[0].sum()
    assert values[2].unique().tolist() == [-1.0, 0.0]
    by_token = spread_members(torch.tensor([[1.0], [-2.0]]).expand(ids.shape), batch)
    assert torch.allclose(by_token, values)
