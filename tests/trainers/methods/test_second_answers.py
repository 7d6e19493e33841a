"""Second answers: what an episode's tools gave back is read from its tree as from its text, and only a closed answer counts."""

import pytest
import torch

from tests.trainers.methods.turn_scripts import script_nodes
from trainers.contract.events import Message
from trainers.methods.second_answers import VERIFIER, ask_again, observe_path, read_second_answer
from trainers.worlds.base import replay_episode
from trainers.worlds.observations import list_observations


def play_all(session, seed=0):
    torch.manual_seed(seed)
    return session.play([episode.root for episode in session.begin()])


def test_a_tree_and_its_text_tell_the_same(make_session):
    session = make_session(max_tokens=400)
    seen = 0
    for leaf in play_all(session):
        found = observe_path(leaf)
        assert found == list_observations(replay_episode(session.run.task, leaf.episode.example, session.text_of(leaf)))
        seen += len(found)
    assert seen


@pytest.mark.parametrize(("written", "answer"), [("Rome</answer>", "Rome"), (" Rome </answer>x", "Rome"), ("Rome", None), ("", None)])
def test_only_a_closed_answer_is_one(make_session, monkeypatch, written, answer):
    session = make_session()
    leaves = play_all(session)[:1]
    script_nodes(monkeypatch, lambda node: written)
    ((node,),) = session.ask(VERIFIER, leaves, [[Message("user", "Eva")]], begin=["<answer>"])
    assert read_second_answer(node) == answer


def test_the_share_of_several_answers_and_none_without_room(make_session, monkeypatch):
    session = make_session()
    leaves = play_all(session)[:2]
    texts = iter([f"{leaves[0].episode.example.reference}</answer>", "none</answer>", "none</answer>", "none</answer>"])
    script_nodes(monkeypatch, lambda node: next(texts))
    questions = [session.prompts[0]] * 2
    assert ask_again(session, leaves, questions, ["", ""], count=2) == [0.5, 0.0]
    assert ask_again(session, leaves[:1], questions[:1], ["Eva " * 200]) == [0.0]
    assert ask_again(session, [], [], []) == []
    assert not any(node.trained for leaf in leaves for node in leaf.episode.nodes if node.seat == VERIFIER)
