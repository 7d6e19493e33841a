"""TimeSearch-R: what two answers are paid, what the second one sees, and that it is GRPO without form and second answer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.turn_scripts import WORLD, script_nodes
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.recipes import RECIPES
from trainers.contract.spec import parse_spec
from trainers.methods.second_answers import VERIFIER
from trainers.methods.worlds.timesearch_r import FOUND, SECOND, Config, TimeSearchR, reward_two_answers, round_up
from trainers.tasks.registry import get_task
from trainers.worlds.graph import Graph
from trainers.worlds.search import find_evidence, read_facts
from trainers.worlds.tables import Tables

WEIGHTS = (1.0, 0.5, 0.5)
SHARES = st.floats(0, 1, width=32)


def make_method(session, **config):
    method = TimeSearchR(Config(**config))
    method.prepare(session.run)
    return method


def pay(form, first, second, weights=WEIGHTS):
    return reward_two_answers(*(torch.tensor(float(one)) for one in (form, first, second)), weights).item()


def test_the_worked_example():
    assert (pay(1, 1, 0), pay(1, 1, 1), pay(1, 0, 1)) == (1.5, 2.0, 1.0)
    assert pay(0, 0.6, 0.4) == pytest.approx(0.3 + 0.2)
    assert round_up(torch.tensor([0.0, 0.5, 0.51, 1.0])).tolist() == [0.0, 0.5, 1.0, 1.0]


@given(SHARES, SHARES, SHARES)
def test_a_second_answer_pays_with_the_first_alone(form, first, second):
    assert pay(form, 0, second) == pytest.approx(form)
    assert pay(form, first, 0) - 1e-6 <= pay(form, first, second) <= sum(WEIGHTS) + 1e-6
    assert pay(form, first, 1) >= pay(form, first, second) - 1e-6


def write_turn(node):
    """Members: the way; the right answer after the first search alone; after an empty search; and at once. Second answers need all the evidence."""
    episode = node.episode
    example, facts = episode.example, read_facts(episode.example).facts
    if episode.is_side(node):
        told = all(facts[number].sentence in node.text for number in find_evidence(example))
        return f"{example.reference if told else 'none'}</answer>"
    queries = [f"<search>{facts[number].subject}'s {facts[number].relation}</search>" for number in find_evidence(example)]
    answer = f"<answer>{example.reference}</answer>"
    turns = ([*queries, answer], [queries[0], answer], ["<search>zzz</search>", answer], [answer])[episode.member % 4]
    return turns[len(episode.turns(node))]


def ask_about_two_hops(session):
    example = next(one for one in session.run.task.examples("train", 8, 0, "medium") if len(one.data["evidence"]) == 2)
    session.examples, session.prompts = [example] * 4, [list(example.prompt)] * 4


def test_second_answers_see_the_findings_alone_and_are_not_trained(make_session, monkeypatch):
    session = make_session()
    ask_about_two_hops(session)
    script_nodes(monkeypatch, write_turn)
    made = make_method(session, answers=2).rollout(session)
    assert [one.notes for one in made] == [{SECOND: 1.0, FOUND: True}, {SECOND: 0.0, FOUND: True}, *[{SECOND: 0.0, FOUND: False}] * 2]
    for one in made:
        tree = one.row.episode
        assert tree.leaves() == [one.row.leaf]
        assert one.mask == [int(turn.role == "assistant") for turn in one.turns for _ in range(turn.start, turn.end)]
        answers = tree.side_leaves()
        assert len(answers) == 2 * one.notes[FOUND]
        for answer in answers:
            prompt, given, written = tree.path(answer)
            told = "".join(node.text for node in tree.path(one.row.leaf) if node.by == "world")
            assert (prompt.ids, prompt.about, prompt.seat) == (tree.root.ids, one.row.leaf.number, VERIFIER)
            assert given.text == f"{told}<answer>"
            assert not written.trained
            assert written.notes["right"] == one.notes[SECOND]


@pytest.mark.parametrize("world", [Graph(), Tables()], ids=lambda world: world.name)
def test_where_findings_say_nothing_by_themselves_the_calls_stand_before_them(world, make_session, monkeypatch):
    session = make_session(world)
    world, example = session.run.task, session.examples[0]
    session.examples, session.prompts = [example], [list(example.prompt)]
    way = world.way(example, world.begin(example))
    script_nodes(monkeypatch, lambda node: "none</answer>" if node.episode.is_side(node) else way[len(node.episode.turns(node))])
    (one,) = make_method(session).rollout(session)
    (answer,) = one.row.episode.side_leaves()
    assert one.row.episode.parent(answer).text == world.gold(example).partition("<answer>")[0] + "<answer>"


def test_rewards_of_a_group_and_what_is_reported(make_session, monkeypatch):
    session = make_session()
    ask_about_two_hops(session)
    script_nodes(monkeypatch, write_turn)
    method = make_method(session)
    made = method.rollout(session)
    scores = [1.0, 1.0, 1.0, 0.0]
    texts = [*(one.text for one in made[:3]), "<answer>none"]
    batch = rollout_batch(scores, 4, texts=texts, examples=session.examples, notes=[one.notes for one in made])
    assert method.rewards(batch, batch.reward).tolist() == [2.0, 1.5, 1.5, 0.0]
    logged = method.collect()
    assert logged.pop("policy_tokens") > sum(sum(one.mask) for one in made)
    assert logged == {"right": 0.75, "second": 0.25, "found": 0.5, "unsupported": pytest.approx(2 / 3)}
    stored = rollout_batch(scores, 4, texts=texts, examples=session.examples)
    assert torch.equal(method.rewards(stored, stored.reward), stored.reward)
    method.config = Config(form=0.0, answer=1.0, verification=0.0)
    assert torch.equal(method.rewards(batch, batch.reward), batch.reward)


def test_episodes_are_sampled_as_without_it(make_session):
    session = make_session()
    torch.manual_seed(0)
    whole = session.complete()
    torch.manual_seed(0)
    made = make_method(session).rollout(session)
    assert [(one.ids, one.mask, one.logprobs, one.text) for one in made] == [(one.ids, one.mask, one.logprobs, one.text) for one in whole]


@pytest.mark.parametrize("world", sorted(TimeSearchR.worlds))
def test_the_recipe_can_be_launched_in_every_world_with_evidence_to_find(world, tmp_path):
    (stage,) = next(recipe for recipe in RECIPES if recipe.name == "evidence").stages
    assert stage.spec["task"]["name"] in TimeSearchR.worlds
    kind = get_task(world)
    training = {**stage.spec["training"], "max_completion_length": kind.episode_tokens}
    task = {"name": world, "difficulty": next(iter(kind.difficulties))}
    report = run_preflight_checks(parse_spec({**stage.spec, "task": task, "training": training, "output": str(tmp_path)}))
    assert report.problems == report.warnings == []


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    script_nodes(monkeypatch, write_turn)
    trained = two_steps("timesearch-r", base="grpo", **{**WORLD, "task": {"name": "search", "difficulty": "medium"}})
    for rollout in trained.rollouts:
        assert rollout.shaped["timesearch-r"] == (2.0 if rollout.sample % 4 == 0 else 1.5)
        aside = [node for node in rollout.nodes if node.seat == VERIFIER and node.by == "policy"]
        assert len(aside) == int(rollout.sample % 4 < 2)
    assert all(step["timesearch-r/unsupported"] == 0.75 for step in trained.steps)
