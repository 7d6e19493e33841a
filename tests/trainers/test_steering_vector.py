"""Steering vectors: what they are the mean of, where they are added, that they leave no trace, and their files."""

import os

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from trainers.attempt.inputs import digest_weights
from trainers.contract.problems import SpecError
from trainers.contract.steering_file import FACTS_FILE, MOST_BYTES, VECTOR_FILE, SteeringFacts, parse_steering_facts
from trainers.policies.steering_files import check_vector_fits, load_steering_vector, save_steering_vector
from trainers.policies.steering_vector import (
    SteeringMismatch,
    add_vector,
    average_answer_states,
    compute_steering_vectors,
    list_decoder_layers,
    steer_layer,
    sum_answer_states,
)

SIZE, LAYERS, WORDS, PAD = 16, 3, 40, 0
SHAPE = {"vocab_size": WORDS, "hidden_size": SIZE, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "max_position_embeddings": 64}


def end_never(model):
    """No end token: all rows are written to the same length."""
    model.generation_config.eos_token_id = None
    return model.eval()


def build_model(kind="llama"):
    torch.manual_seed(0)
    if kind == "gpt2":
        return end_never(GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=SIZE, n_layer=LAYERS, n_head=2, n_positions=64)))
    more = {"num_key_value_heads": 2, "intermediate_size": 32, "initializer_range": 0.3}
    return end_never(Qwen2ForCausalLM(Qwen2Config(**SHAPE, **more)) if kind == "qwen2" else LlamaForCausalLM(LlamaConfig(**SHAPE, **more)))


@pytest.fixture(scope="module")
def model():
    return build_model()


def draw_answers(count, seed=0, shortest=1):
    """Rows of different lengths, each with the place where its answer begins."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 6, (count, 2), generator=generator).tolist()
    rows = [torch.randint(1, WORDS, (3 + before + shortest + after,), generator=generator).tolist() for before, after in lengths]
    return [(row, 3 + before) for row, (before, _) in zip(rows, lengths, strict=True)]


def write(model, prompts, **how):
    """Greedy continuations of prompts, padded on the left to one width."""
    width = max(map(len, prompts))
    ids = torch.tensor([[PAD] * (width - len(row)) + list(row) for row in prompts])
    config = GenerationConfig(max_new_tokens=6, do_sample=False, pad_token_id=PAD, eos_token_id=None, disable_compile=True, **how)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts])
    made = model.generate(input_ids=ids, attention_mask=mask, generation_config=config, return_dict_in_generate=True, output_logits=True)
    return made.sequences[:, width:], torch.stack(made.logits, 1)


def test_the_worked_example():
    chosen = average_answer_states(torch.tensor([[[9.0, 9], [1, 0], [3, 0]]]), [1], [3], "mean")
    rejected = average_answer_states(torch.tensor([[[9.0, 9], [5, 5], [1, 1]]]), [1], [3], "last")
    assert (chosen.tolist(), rejected.tolist()) == ([[2, 0]], [[1, 1]])
    vector = (chosen - rejected)[0]
    assert vector.tolist() == [1, -1]
    assert add_vector(torch.tensor([[[0.0, 1]]]), 0.5 * vector, 0, None).tolist() == [[[0.5, 0.5]]]


def test_positions_before_the_first_steered_one_are_the_same_bits():
    hidden = torch.randn(2, 5, 4)
    hidden[0, 0, 0] = -0.0
    made = add_vector(hidden, torch.ones(4), 0, torch.tensor([1, 4]))
    assert torch.equal(made[0, :1], hidden[0, :1])
    assert torch.signbit(made[0, 0, 0])
    assert torch.equal(made[1, :4], hidden[1, :4])
    assert torch.equal(made[0, 1:], hidden[0, 1:] + 1)
    assert torch.equal(made[1, 4:], hidden[1, 4:] + 1)
    assert torch.equal(add_vector(hidden[:, :1], torch.ones(4), 7, None), hidden[:, :1] + 1)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_a_vector_is_the_mean_difference_of_states_in_any_architecture(kind):
    model, chosen, rejected = build_model(kind), draw_answers(5, 1), draw_answers(5, 2)
    found = compute_steering_vectors(model, chosen, rejected, [0, 1], pad=PAD, size=2, positions="mean")
    wanted = torch.zeros(2, SIZE)
    for sign, side in ((1, chosen), (-1, rejected)):
        for row, begin in side:
            with torch.no_grad():
                states = model(input_ids=torch.tensor([row]), output_hidden_states=True).hidden_states
            wanted += sign * torch.stack([states[layer + 1][0, begin:].mean(0) for layer in (0, 1)]) / 5
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 9), st.sampled_from(["mean", "last"]), st.integers(0, 3))
def test_the_batch_size_changes_nothing(size, positions, seed):
    model, chosen, rejected = build_model(), draw_answers(7, seed), draw_answers(7, seed + 10)
    how = {"pad": PAD, "positions": positions}
    one = compute_steering_vectors(model, chosen, rejected, range(LAYERS), size=1, **how)
    torch.testing.assert_close(compute_steering_vectors(model, chosen, rejected, range(LAYERS), size=size, **how), one, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(compute_steering_vectors(model, rejected, chosen, range(LAYERS), size=size, **how), -one, atol=1e-5, rtol=1e-4)


def test_a_planted_direction_is_found_and_the_last_layer_is_read_before_the_norm(model):
    """Both sides are the same rows, and a direction is added to layer 1 while one is read: there it is the vector, in the last layer it shows."""
    planted, answers = torch.randn(SIZE, generator=torch.Generator().manual_seed(3)), draw_answers(6, 4)
    starts = torch.tensor([begin for _, begin in answers])
    plain = sum_answer_states(model, answers, [0, 1, 2], PAD, 6, "mean")
    with steer_layer(model, 1, planted, 2.0, starts):
        moved = sum_answer_states(model, answers, [0, 1, 2], PAD, 6, "mean")
    found = ((moved - plain) / len(answers)).float()
    assert torch.equal(found[0], torch.zeros(SIZE))
    torch.testing.assert_close(found[1], 2 * planted, atol=1e-4, rtol=1e-4)
    assert torch.cosine_similarity(found[2], planted, dim=0) > 0.5  # the residual stream carries it on


@pytest.mark.parametrize(("chosen", "rejected"), [([], []), ([([1, 2], 1)], []), ([([1, 2], 2)], [([1, 2], 1)]), ([([1, 2], 0)], [([1, 2], 1)])])
def test_what_are_no_pairs_is_refused(model, chosen, rejected):
    with pytest.raises(ValueError, match=r"no pairs|no tokens"):
        compute_steering_vectors(model, chosen, rejected, [0], pad=PAD, size=4)


def count_hooks(model):
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules())


def test_alpha_zero_hooks_nothing_and_gives_the_same_bits(model):
    prompts = [[5, 6, 7], [8, 9]]
    plain = write(model, prompts)
    with steer_layer(model, 1, torch.full((SIZE,), float("nan")), 0.0):
        assert count_hooks(model) == 0
        same = write(model, prompts)
    assert all(torch.equal(one, other) for one, other in zip(plain, same, strict=True))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_hooks_go_when_a_pass_fails_and_the_model_is_as_before(kind):
    model, prompts = build_model(kind), [[5, 6, 7], [8, 9]]
    plain = write(model, prompts)
    with steer_layer(model, 1, torch.ones(SIZE), 3.0):
        assert not torch.equal(write(model, prompts)[1], plain[1])
    with pytest.raises(IndexError), steer_layer(model, 1, torch.ones(SIZE), 3.0):
        model(input_ids=torch.tensor([[WORDS]]))  # no such word
    assert count_hooks(model) == 0
    assert torch.equal(write(model, prompts)[1], plain[1])


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_with_and_without_a_cache_the_same_is_written(kind):
    model, prompts, push = build_model(kind), [[5, 6, 7, 8], [9, 10, 11, 12]], torch.randn(SIZE, generator=torch.Generator().manual_seed(1))
    with steer_layer(model, 1, push, 2.0):
        cached, logits = write(model, prompts)
    with steer_layer(model, 1, push, 2.0, torch.tensor([3, 3])):
        uncached, others = write(model, prompts, use_cache=False)
        known, same = write(model, prompts)
    assert torch.equal(cached, uncached)
    torch.testing.assert_close(logits, others, atol=1e-4, rtol=1e-3)
    assert torch.equal(cached, known)
    assert torch.equal(logits, same)


def test_padding_changes_neither_what_is_written_nor_what_is_scored(model):
    prompts, push = [[5, 6, 7, 8, 3, 2], [9, 10]], torch.randn(SIZE, generator=torch.Generator().manual_seed(1))
    with steer_layer(model, 0, push, 2.0):
        together, logits = write(model, prompts)
        alone = [write(model, [row]) for row in prompts]
    for place, (ids, own) in enumerate(alone):
        assert torch.equal(together[place], ids[0])
        torch.testing.assert_close(logits[place], own[0], atol=1e-4, rtol=1e-3)
    texts = [row + ids.tolist() for row, ids in zip(prompts, together, strict=True)]
    width = max(map(len, texts))
    with torch.no_grad(), steer_layer(model, 0, push, 2.0, torch.tensor([len(row) - 1 for row in prompts])):
        scored = model(
            input_ids=torch.tensor([row + [PAD] * (width - len(row)) for row in texts]),
            attention_mask=torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in texts]),
        ).logits
    for place, row in enumerate(prompts):  # what scores a text sees what wrote it
        torch.testing.assert_close(scored[place, len(row) - 1 : len(texts[place]) - 1], logits[place], atol=1e-4, rtol=1e-3)


def test_two_vectors_at_once_add_up(model):
    rows, one, other = torch.tensor([[5, 6, 7]]), torch.randn(SIZE), torch.randn(SIZE)
    with torch.no_grad(), steer_layer(model, 1, one, 1.0), steer_layer(model, 1, other, -2.0):
        both = model(input_ids=rows).logits
    with torch.no_grad(), steer_layer(model, 1, one - 2 * other, 1.0):
        torch.testing.assert_close(both, model(input_ids=rows).logits, atol=1e-4, rtol=1e-3)


def test_what_does_not_fit_is_refused_before_anything_is_hooked(model):
    with pytest.raises(SteeringMismatch, match="no layer 3: the policy has 3"), steer_layer(model, 3, torch.ones(SIZE), 1.0):
        pass
    with pytest.raises(SteeringMismatch, match="shape"), steer_layer(model, 0, torch.ones(SIZE + 1), 1.0):
        pass
    assert count_hooks(model) == 0


FACTS = SteeringFacts(layer=1, layers=LAYERS, hidden_size=SIZE, alpha=2.5, pairs=7, positions="mean", dataset="a" * 64)


def test_a_saved_vector_comes_back_and_is_no_part_of_the_weights(model, tmp_path):
    model.save_pretrained(tmp_path)
    weights, vector = digest_weights(tmp_path), torch.randn(SIZE)
    facts = msgspec.structs.replace(FACTS, weights=weights)
    save_steering_vector(tmp_path, vector, facts)
    found, told = load_steering_vector(tmp_path)
    assert torch.equal(found, vector)
    assert told == facts
    assert digest_weights(tmp_path) == weights
    assert not list(tmp_path.glob("*.partial"))
    check_vector_fits(told, model, tmp_path)
    LlamaForCausalLM.from_pretrained(tmp_path)  # which does not read it


def test_a_saved_vector_leaves_another_name_of_the_file_alone(tmp_path):
    save_steering_vector(tmp_path / "old", torch.zeros(SIZE), FACTS)
    (tmp_path / "new").mkdir()
    for name in (VECTOR_FILE, FACTS_FILE):
        os.link(tmp_path / "old" / name, tmp_path / "new" / name)
    save_steering_vector(tmp_path / "new", torch.ones(SIZE), FACTS)
    assert load_steering_vector(tmp_path / "old")[0].sum() == 0
    assert load_steering_vector(tmp_path / "new")[0].sum() == SIZE


def test_another_policy_is_refused(model, tmp_path):
    model.save_pretrained(tmp_path)
    with pytest.raises(SpecError, match="was made for 2 layers of 16 values, and this policy has 3 of 16"):
        check_vector_fits(msgspec.structs.replace(FACTS, layers=2), model, tmp_path)
    with pytest.raises(SpecError, match="other weights"):
        check_vector_fits(msgspec.structs.replace(FACTS, weights="b" * 64), model, tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (FACTS_FILE, None, "No such file"),
        (VECTOR_FILE, None, "No such file"),
        (FACTS_FILE, b"{", "cannot be read"),
        (FACTS_FILE, b" " * (MOST_BYTES + 1), "larger than"),
        (VECTOR_FILE, b"no tensor", "not readable"),
        (VECTOR_FILE, bytes(1 << 18), "larger than a vector"),
    ],
)
def test_broken_files_are_said(tmp_path, name, data, words):
    save_steering_vector(tmp_path, torch.zeros(SIZE), FACTS)
    (tmp_path / name).unlink() if data is None else (tmp_path / name).write_bytes(data)
    with pytest.raises(SpecError, match=words):
        load_steering_vector(tmp_path)


@pytest.mark.parametrize(("vector", "words"), [(torch.zeros(3), "no vector of 16"), (torch.full((SIZE,), float("inf")), "not finite")])
def test_broken_vectors_are_said(tmp_path, vector, words):
    save_steering_vector(tmp_path, torch.zeros(SIZE), FACTS)
    save_file({"vector": vector}, tmp_path / VECTOR_FILE)
    with pytest.raises(SpecError, match=words):
        load_steering_vector(tmp_path)


@pytest.mark.parametrize("change", [{"layer": LAYERS}, {"alpha": 1e9}, {"pairs": 0}, {"weights": "x"}, {"positions": "first"}, {"more": 1}])
def test_facts_that_cannot_be_are_refused(change):
    with pytest.raises(SpecError, match="cannot be read"):
        parse_steering_facts(msgspec.json.encode({**msgspec.to_builtins(FACTS), **change}))


def test_layers_are_found_by_their_number(model):
    assert len(list_decoder_layers(model)) == LAYERS
    assert list_decoder_layers(build_model("gpt2"))[0].__class__.__name__ == "GPT2Block"
