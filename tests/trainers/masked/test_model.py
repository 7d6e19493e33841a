"""The masked policy: it sees both sides, padding changes nothing, a folder loads as it was saved, and writing ends with every position filled."""

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LogitsProcessorList

from trainers.masked.denoising import Denoising, denoise_tokens
from trainers.masked.likelihood import order_logprob
from trainers.masked.model import MaskedLlama, MaskedLlamaConfig, cut_after_end
from trainers.policies.sampling import TokenStatistics

PAD, END, WORDS = 0, 1, 20


@pytest.fixture(scope="module")
def model():
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
        diffusion_steps=4,
        initializer_range=0.5,
    )
    return MaskedLlama(config).eval()


def words(count, rows=2, seed=0):
    return torch.randint(2, WORDS, (rows, count), generator=torch.Generator().manual_seed(seed))


def test_every_position_sees_what_stands_after_it(model):
    ids = words(6)
    other = ids.clone()
    other[:, -1] = (ids[:, -1] - 1) % (WORDS - 2) + 2
    assert not torch.allclose(model(ids).logits[:, 0], model(other).logits[:, 0], atol=1e-4)


def test_padding_on_either_side_changes_nothing(model):
    ids = words(5)
    plain = model(ids, with_confidence=True)
    left = torch.cat([torch.full((2, 3), PAD), ids, torch.full((2, 2), PAD)], 1)
    there = torch.cat([torch.zeros(2, 3), torch.ones(2, 5), torch.zeros(2, 2)], 1).long()
    padded = model(left, there, with_confidence=True)
    assert torch.allclose(padded.logits[:, 3:8], plain.logits, atol=1e-4)
    assert torch.allclose(padded.confidence[:, 3:8], plain.confidence, atol=1e-4)
    assert torch.allclose(model(ids, logits_to_keep=2).logits, plain.logits[:, -2:], atol=1e-4)


def test_a_mask_token_is_there_and_padding_is_not(model):
    ids = words(5)
    ids[:, 2] = PAD
    whole, without = torch.ones(2, 5).long(), torch.tensor([[1, 1, 0, 1, 1]] * 2)
    assert not torch.allclose(model(ids, whole).logits[:, 0], model(ids, without).logits[:, 0], atol=1e-4)


def test_the_confidences_loss_leaves_the_tokens_alone(model):
    model.zero_grad()
    model(words(4), with_confidence=True).confidence.sum().backward()
    assert model.model.embed_tokens.weight.grad is None
    assert model.confidence[0].weight.grad is not None
    model.zero_grad()


def test_a_folder_loads_as_the_class_that_was_saved(model, tmp_path):
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(again, MaskedLlama)
    assert again.config.diffusion_steps == 4
    assert torch.allclose(again(words(4)).logits, model(words(4)).logits)
    assert again.lm_head.weight is again.model.embed_tokens.weight


def start(rows=3, length=7):
    ids = torch.cat([words(4, rows), torch.full((rows, length), PAD)], 1)
    writable = torch.zeros_like(ids, dtype=torch.bool)
    writable[:, 4:] = True
    return ids, torch.ones_like(ids), writable


@pytest.mark.parametrize("remasks", [False, True])
def test_after_each_step_as_many_positions_are_written_as_the_schedule_says(model, remasks):
    ids, there, writable = start()
    made = denoise_tokens(model, ids, there, writable, Denoising(3, 1.0, remasks, generator=torch.Generator().manual_seed(0)))
    assert [int((state[0, 4:] != PAD).sum()) for state in made.history] == [3, 5, 7]
    assert torch.equal(made.ids[:, :4], ids[:, :4])
    if not remasks:
        for before, after in zip(made.history, made.history[1:], strict=False):
            assert torch.equal(before[before != PAD], after[before != PAD])  # fixed once it is written
        assert made.remasked.tolist() == [0, 0, 0]


def test_rows_of_different_lengths_are_all_filled(model):
    ids, there, writable = start(rows=2)
    writable[1, 8:] = False
    ids[1, 8:], there[1, 8:] = PAD, 0
    made = denoise_tokens(model, ids, there, writable, Denoising(4, 0.0))
    assert ((made.ids != PAD) | ~writable).all()
    assert (made.ids[1, 8:] == PAD).all()


def test_a_position_that_became_doubtful_is_taken_back(model):
    class Doubting:
        """Sure of positions 4 and 5 in the first step, of all others afterwards."""

        mask_id, training, asked = PAD, False, 0

        def train(self, mode):
            return self

        eval = lambda self: self  # noqa: E731

        def __call__(self, input_ids, attention_mask, with_confidence):
            self.asked += 1
            output = model(input_ids, attention_mask, with_confidence=True)
            scores = torch.arange(input_ids.shape[1]).float().expand(input_ids.shape)
            output.confidence = -scores if self.asked == 1 else scores
            return output

    ids, there, writable = start(rows=1, length=4)
    made = denoise_tokens(Doubting(), ids, there, writable, Denoising(2, 0.0, True))
    assert (made.history[0][0, 4:] != PAD).tolist() == [True, True, False, False]
    assert (made.ids[0, 4:] != PAD).all()
    three = denoise_tokens(Doubting(), ids, there, writable, Denoising(3, 0.0, True))
    assert three.remasked.item() == 1


def test_the_log_probability_of_a_trajectory_is_that_of_its_orders_and_tokens(model):
    ids, there, writable = start(rows=2, length=3)
    made = denoise_tokens(model, ids, there, writable, Denoising(1, 1.0, True, True, torch.Generator().manual_seed(3)))
    output = model(ids, there, with_confidence=True)
    logits = output.logits.clone()
    logits[..., PAD] = -torch.inf
    tokens = torch.log_softmax(logits, -1).gather(2, made.ids[..., None])[..., 0][:, 4:].sum(1)
    scores = output.confidence.masked_fill(~writable, -torch.inf)
    assert torch.isfinite(made.logprobs).all()
    every = torch.stack(
        [order_logprob(scores, torch.tensor([order] * 2)) for order in ([4, 5, 6], [4, 6, 5], [5, 4, 6], [5, 6, 4], [6, 4, 5], [6, 5, 4])]
    )
    assert (every - (made.logprobs - tokens)).abs().amin(0).max() < 1e-4


def test_generate_ends_at_the_first_end_token(model):
    ids = torch.tensor([[5, 6, 7, END, 8, 9], [5, 6, 7, 8, 9, END], [5, 6, END, END, 9, 9]])
    assert cut_after_end(ids, 2, END, PAD).tolist() == [[5, 6, 7, END, 0, 0], [5, 6, 7, 8, 9, END], [5, 6, END, 0, 0, 0]]
    assert cut_after_end(ids[[0, 2]], 2, [END], PAD).shape[1] == 4
    config = GenerationConfig(max_new_tokens=5, do_sample=True, temperature=1.0, eos_token_id=END, pad_token_id=PAD)
    torch.manual_seed(0)
    first = model.generate(words(3), generation_config=config)
    torch.manual_seed(0)
    assert torch.equal(first, model.generate(words(3), generation_config=config))
    assert torch.equal(first[:, :3], words(3))
    assert first.shape[1] <= 8


def test_what_watches_is_shown_what_each_token_was_drawn_from(model):
    config = GenerationConfig(max_new_tokens=1, do_sample=True, temperature=1.0, eos_token_id=END, pad_token_id=PAD)
    watch = TokenStatistics(1.0)
    made = model.generate(words(3), generation_config=config, logits_processor=LogitsProcessorList([watch]))
    logprobs, _ = watch.finish(made[:, -1])
    masked = torch.cat([words(3), torch.full((2, 1), PAD)], 1)
    logits = model(masked).logits[:, -1].index_fill(-1, torch.tensor([PAD]), -torch.inf)
    expected = torch.log_softmax(logits, -1).gather(1, made[:, -1:])
    assert torch.allclose(torch.tensor(logprobs), expected, atol=1e-4)


def test_the_mask_is_learnt_like_any_other_token(model):
    model.zero_grad()
    model(torch.full((1, 3), PAD)).logits.sum().backward()
    assert model.model.embed_tokens.weight.grad[PAD].abs().sum() > 0
    model.zero_grad()
