"""Episodes continued from the middle: what was there before stays, chance depends on the key alone, and the pieces join again."""

import random
from types import SimpleNamespace

import pytest
import torch

from trainers.data.episode_samples import continue_episodes, write_pieces, write_replay
from trainers.policies import tiny
from trainers.texts.token_overlap import compute_f1, split_answer_words
from trainers.worlds.base import replay_episode
from trainers.worlds.search import Search

WORLD = Search()


@pytest.fixture(scope="module")
def run():
    """The built-in policy with random weights."""
    family = tiny.find_family(WORLD)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    limits = SimpleNamespace(max_completion_length=60)
    return SimpleNamespace(
        task=WORLD,
        tokenizer=tokenizer,
        model=tiny.build_model(tokenizer),
        device=torch.device("cpu"),
        training=limits,
        attempt=SimpleNamespace(sampling_batch=2),
        rng=lambda *key: random.Random(str(key)),
    )


def test_an_episode_goes_on_from_where_it_was(run):
    examples = WORLD.examples("train", 3, 0, "medium")
    golds = [replay_episode(WORLD, example, WORLD.gold(example)) for example in examples]
    begun = [write_pieces(gold, 1) for gold in golds]
    state = torch.get_rng_state()
    made = continue_episodes(run, examples, begun, 1.0, "one")
    assert torch.equal(torch.get_rng_state(), state), "the run's own chance is left alone"
    for gold, replay in zip(golds, made, strict=True):
        assert replay.turns[0] == gold.turns[0]
    again, other = (continue_episodes(run, examples, begun, 1.0, key) for key in ("one", "two"))
    assert again == made
    assert other != made


@pytest.mark.parametrize("difficulty", ["easy", "hard"])
def test_the_pieces_of_an_episode_are_its_text(difficulty):
    for example in WORLD.examples("train", 5, 0, difficulty):
        gold = WORLD.gold(example)
        replay = replay_episode(WORLD, example, gold)
        assert write_replay(replay) == gold
        assert gold.startswith("".join(write_pieces(replay, 1)))


def test_words_that_an_answer_shares_with_the_right_one():
    assert split_answer_words("The Eiffel-Tower, a tower!", articles=False) == ["eiffeltower", "tower"]
    assert compute_f1(["a", "b", "b"], ["b", "b", "c"]) == pytest.approx(2 / 3)
    assert compute_f1([], []) == 0
