"""A bias of an episode reaches the logits that its turns are sampled from, and no other's."""

import pytest
import torch


def find_token(session, text):
    (id_,) = session.engine.encode(text)
    return id_


def test_an_episode_with_a_bias_writes_what_it_favours(make_session):
    session = make_session()
    episodes, token = session.begin(), find_token(session, "Eva")
    size = session.model.config.vocab_size
    episodes[0].bias = torch.zeros(size).index_fill(0, torch.tensor([token]), 100.0)
    episodes[1].bias = torch.zeros(size)
    leaves = session.play([episode.root for episode in episodes], turns=1, max_tokens=8)
    written = [[id_ for node in leaf.episode.path(leaf) if node.by == "policy" for id_ in node.ids] for leaf in leaves]
    assert written[0] == [token] * 8
    assert all(ids != [token] * 8 for ids in written[1:])
    first = leaves[0].episode.nodes[1]
    assert max(abs(value) for value in first.logprobs) < 1e-3  # those of what was sampled from


def test_a_bias_of_zeros_changes_nothing(make_session):
    made = []
    for bias in (None, 0.0):
        session = make_session()
        episodes = session.begin()
        for episode in episodes:
            episode.bias = None if bias is None else torch.full((session.model.config.vocab_size,), bias)
        torch.manual_seed(0)
        leaves = session.play([episode.root for episode in episodes])
        made.append([(node.ids, node.logprobs) for leaf in leaves for node in leaf.episode.path(leaf)])
    assert made[0] == made[1]


def test_texts_of_an_episode_with_a_bias_are_not_scored_by_the_weights(make_session):
    session = make_session()
    episode = session.begin([0])[0]
    episode.bias = torch.zeros(session.model.config.vocab_size)
    with pytest.raises(ValueError, match="bias"):
        session.likelihood([episode.root], ["Eva"])
