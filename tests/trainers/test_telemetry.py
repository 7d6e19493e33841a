"""What each token adds to the text, and text that is safe to store."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from trainers.attempt.telemetry import Pieces, Scored, build_rollout_event, to_storable_text
from trainers.contract import arrays
from trainers.contract.events import Message, Turn
from trainers.policies import tiny


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.build_tokenizer(tiny.build_tokenizer_corpus()[:2000])


@pytest.fixture(scope="module")
def pieces(tokenizer):
    return Pieces(tokenizer)


@pytest.fixture(scope="module")
def metaspace():
    """A tokenizer that is not byte-level: its decoder drops the first space, so a token's own text depends on where it stands."""
    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Metaspace()
    raw.train_from_iterator(["the cat sat on the mat", "ünïcode wörds"] * 50, trainers.BpeTrainer(vocab_size=80, special_tokens=["<unk>", "</s>"]))
    return PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", unk_token="<unk>", clean_up_tokenization_spaces=False)


def test_it_counts_the_code_points_of_every_token(tokenizer, pieces):
    text = "<think>3+3=6</think><answer>6</answer>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    lengths = pieces.lengths(ids, text)
    ends = np.cumsum(lengths)
    assert [text[end - length : end] for end, length in zip(ends, lengths, strict=True)] == [tokenizer.decode([id_]) for id_ in ids]


def test_it_gives_special_tokens_no_length(tokenizer, pieces):
    ids = [*tokenizer.encode("<answer>6</answer>", add_special_tokens=False), tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert pieces.lengths(ids, tokenizer.decode(ids, skip_special_tokens=True))[-2:] == [0, 0]


def test_it_counts_a_character_split_over_tokens_with_the_token_that_completes_it(tokenizer, pieces):
    text = "a😀b"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == 6  # four bytes of the emoji, one token each
    assert pieces.lengths(ids, text) == [1, 0, 0, 0, 1, 1]


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_it_cuts_any_text_where_its_tokens_end(tokenizer, pieces, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    assert decoded == text
    lengths = pieces.lengths(ids, decoded)
    assert sum(lengths) == len(text)
    done = 0
    for place, length in enumerate(lengths):
        done += length
        so_far = tokenizer.decode(ids[: place + 1], skip_special_tokens=True).removesuffix("\ufffd")
        assert text[:done].startswith(so_far.rstrip("\ufffd")) or "\ufffd" in text


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_it_fits_whatever_bytes_a_policy_samples(tokenizer, pieces, data):
    """Random ids are mostly broken UTF-8: the lengths must still add up to the text that is stored."""
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    text = tokenizer.decode(ids, skip_special_tokens=True)
    lengths = pieces.lengths(ids, text)
    assert len(lengths) == len(ids)
    assert min(lengths, default=0) >= 0
    assert sum(lengths) == len(text)


def test_it_fits_decoders_that_are_not_byte_level(metaspace):
    text = "the cat sat on the mat ünïcode wörds"
    ids = metaspace.encode(text, add_special_tokens=False)
    assert metaspace.decode(ids) == text
    lengths = Pieces(metaspace).lengths(ids, text)
    ends = np.cumsum(lengths)
    assert ends[-1] == len(text)
    assert [int(end) for end in ends] == [len(metaspace.decode(ids[: place + 1])) for place in range(len(ids))]


def test_it_is_fast_on_very_long_completions(tokenizer, pieces):
    text = "a😀" * 100_000
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert sum(pieces.lengths(ids, text)) == 200_000  # the module's time limit is the test


@pytest.mark.parametrize(("given_text", "stored"), [("a\x00b", "a\u2400b"), ("\ud800x\udfff", "\ufffdx\ufffd"), ("<script>é😀", "<script>é😀")])
def test_it_makes_text_storable_one_code_point_for_one(given_text, stored):
    assert to_storable_text(given_text) == stored
    assert len(stored) == len(given_text)
    stored.encode()


def scored(**changes):
    fields = {
        "step": 1,
        "phase": "train",
        "group": 0,
        "sample": 0,
        "prompt": [Message("user", "q\x00")],
        "text": "",
        "rewards": {"correct": 1.0},
        "reward": 1.0,
        "finish_reason": "stop",
        "ids": [],
    }
    return Scored(**(fields | changes))


def test_a_rollout_carries_arrays_of_one_length_and_statistics_of_the_policys_tokens_only(tokenizer, pieces):
    ids = tokenizer.encode("<search>Leo", add_special_tokens=False) + tokenizer.encode("<answer>x\x00", add_special_tokens=False)
    text = tokenizer.decode(ids, skip_special_tokens=True)
    mask = [1, 1, *[0] * (len(ids) - 2)]
    entropies = np.array([0.5, 1.5, *[9.0] * (len(ids) - 2)], np.float32)
    turns = [Turn("assistant", 0, 2), Turn("tool", 2, len(ids))]
    event = build_rollout_event(scored(ids=ids, text=text, mask=mask, turns=turns), -entropies, entropies, pieces, {"attempt": 1, "time": 0.0})
    assert {len(arrays.unpack_array(data)) for data in (event.ids, event.lengths, event.logprobs, event.entropies, event.mask)} == {len(ids)}
    assert (event.mean_entropy, event.max_entropy, event.length) == (1.0, 1.5, 2)
    assert arrays.unpack_array(event.ids).tolist() == ids
    assert event.completion == text.replace("\x00", "\u2400")
    assert event.prompt[0].content == "q\u2400"


def test_a_rollout_without_finite_entropies_has_no_mean(pieces):
    event = build_rollout_event(scored(ids=[20], text=pieces.piece(20)), np.array([np.nan]), np.array([np.inf]), pieces, {"attempt": 1, "time": 0.0})
    assert event.mean_entropy is None
    assert np.isnan(arrays.unpack_array(event.logprobs)[0])
