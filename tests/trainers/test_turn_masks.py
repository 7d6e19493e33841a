"""Masks of pairs of episodes: after the chat template and the tokenizer, exactly the policy's turns are left."""

import pytest
import torch

from trainers.data.token_spans import TokenSpans
from trainers.data.turn_masks import TurnMasks, find_start, list_own_spans
from trainers.policies import tiny
from trainers.policies.sampling import as_rows
from trainers.worlds.base import replay_episode
from trainers.worlds.search import Search


@pytest.fixture(scope="module")
def tokenizer():
    family = tiny.find_family(Search())
    return tiny.build_tokenizer(family.texts, family.tags)


def tokenize(tokenizer, row, side):
    """Ids of the whole row without the first, as the loss has them, and the mask of the side's tokens."""
    before = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    ids = tokenizer.apply_chat_template([*row["prompt"], *row[side]], tokenize=True, return_dict=True)["input_ids"]
    return torch.tensor([ids[1:]]), torch.tensor([[float(place >= len(before)) for place in range(1, len(ids))]])


@pytest.mark.parametrize("first_turn", [0, 1])
def test_what_is_left_is_what_the_policy_wrote(tokenizer, first_turn):
    world = Search()
    for example in world.examples("train", 5, 0, "medium"):
        replay = replay_episode(world, example, world.gold(example))
        row = {"prompt": as_rows(example.prompt), "chosen": [{"role": "assistant", "content": world.gold(example)}]}
        row["own"] = {world.gold(example): list_own_spans(replay, first_turn)}
        ids, mask = tokenize(tokenizer, row, "chosen")
        own = TurnMasks(tokenizer).mask_side([row], "chosen", ids, mask)
        assert tokenizer.decode(ids[own > 0]) == "".join(turn.text for turn in replay.turns[first_turn:])
        cut = ids[:, :-9], mask[:, :-9]
        assert torch.equal(TurnMasks(tokenizer).mask_side([row], "chosen", *cut), own[:, :-9])


@pytest.mark.parametrize("row", [{}, {"own": {"another text": [(0, 1)]}, "chosen": [{"role": "assistant", "content": "rewritten"}]}])
def test_a_row_that_says_nothing_of_a_text_counts_whole(row):
    mask = torch.tensor([[0.0, 1.0, 1.0]])
    assert torch.equal(TurnMasks(None).mask_side([row], "chosen", torch.zeros(1, 3, dtype=torch.long), mask), mask)


def test_other_tokens_than_those_of_the_text_are_an_error():
    marked = TokenSpans([1, 2, 3], 1, [0.0] * 3, [0.0] * 3, [], 0)
    assert find_start([2, 3], marked) == 1
    with pytest.raises(ValueError, match="others than those of its text"):
        find_start([5], marked)
