"""Coupled scoring: every written token counts, ends are scored in the window they were written in, and splitting a batch changes nothing."""

import torch

from trainers.masked.model import MaskedLlama, MaskedLlamaConfig
from trainers.masked.scoring import open_window, score_masked, score_window

PAD, END, WORDS = 0, 1, 12


def build_model():
    torch.manual_seed(0)
    config = MaskedLlamaConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
        initializer_range=0.5,
    )
    return MaskedLlama(config).eval()


def batch():
    ids = torch.tensor([[PAD, 5, 6, 7, 8, END], [4, 5, 6, 9, END, PAD]])
    there = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]])
    return ids, there


def test_the_window_holds_end_tokens_behind_the_end():
    window = open_window(*batch(), keep=3, width=5, end=END, seed=0)
    assert window.ids[:, -5:].tolist() == [[7, 8, END, END, END], [9, END, END, END, END]]
    assert window.there[:, -5:].min() == 1
    assert window.there[0, 0] == 0
    assert window.mask.shape == (2, 5)
    assert ((window.shares >= 0.2) & (window.shares <= 0.8)).all()


def test_rows_have_the_same_masks_wherever_they_stand():
    ids, there = batch()
    whole = open_window(ids, there, 3, 5, END, 0)
    padded = open_window(torch.nn.functional.pad(ids, (2, 0), value=PAD)[1:], torch.nn.functional.pad(there, (2, 0))[1:], 3, 5, END, 0)
    assert torch.equal(whole.mask[1:], padded.mask)
    narrow = open_window(ids[1:, :-1], there[1:, :-1], 2, 5, END, 0)  # without the column that only the other row needed
    assert torch.equal(narrow.mask, whole.mask[1:])
    other = open_window(ids, there, 3, 5, END, 1)
    assert not torch.equal(whole.shares, other.shares)


def test_every_token_gets_gradient_and_splitting_changes_nothing():
    model = build_model()
    window = open_window(*batch(), keep=3, width=4, end=END, seed=3)
    logprobs, entropies = score_window(model, window, PAD, 1.0)
    for place in range(4):
        model.zero_grad()
        logprobs[:, place].sum().backward(retain_graph=True)
        assert model.model.embed_tokens.weight.grad.abs().sum() > 0
    assert (entropies > 0).all()
    alone = open_window(*(values[1:] for values in batch()), keep=3, width=4, end=END, seed=3)
    assert torch.allclose(score_window(model, alone, PAD, 1.0)[0], logprobs[1:], atol=1e-4)


def test_it_is_the_formula_on_three_forward_passes():
    model = build_model()
    window = open_window(*batch(), keep=3, width=3, end=END, seed=5)
    with torch.no_grad():
        made, _ = score_window(model, window, PAD, 0.7)
        full, first, second = (
            score_masked(model, window, hidden, PAD, 0.7)[0] for hidden in (torch.ones_like(window.mask), window.mask, ~window.mask)
        )
    for row in range(2):
        share = window.shares[row].item()
        for place in range(3):
            once = first[row, place] / share if window.mask[row, place] else second[row, place] / (1 - share)
            assert torch.isclose(made[row, place], (full[row, place] + once) / 2)
    assert (full < 0).all()
