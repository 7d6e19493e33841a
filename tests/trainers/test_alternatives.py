"""The likeliest tokens that rollouts keep, and the sampler's own log-probabilities, held against a plain recomputation from the logits."""

import numpy as np
import pytest
import torch

from tests.trainers.conftest import ensure_cold_start, events_in, make_spec
from trainers.attempt import train
from trainers.attempt.alternatives import Alternatives, fill_up, keeps_alternatives, pack_alternatives
from trainers.contract import arrays
from trainers.contract.batches import compute_batch_figures
from trainers.contract.events import Metrics, Rollout
from trainers.maths import top_tokens
from trainers.policies import loading as policies

HEAT = 0.7
KEPT = {"telemetry__alternatives_share": 1.0, "telemetry__alternatives": 3, "telemetry__sampler_logprobs": True, "training__temperature": HEAT}
SPLIT = {"training__per_device_train_batch_size": 4, "training__gradient_accumulation_steps": 2}


def trained(folder, **overrides):
    assert train.run_training(make_spec(folder, **overrides), folder) == train.FINISHED
    events = events_in(folder)
    return [event for event in events if isinstance(event, Rollout)], {event.step: event.values for event in events if isinstance(event, Metrics)}


def recompute(event, heat):
    """(T, V) log-probabilities by which the run's first policy chose the tokens of an event, and the ids."""
    policy, tokenizer = policies.load_model(ensure_cold_start(), torch.float32), policies.load_tokenizer(ensure_cold_start())
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": event.prompt[0].content}], add_generation_prompt=True, return_dict=False)
    ids = arrays.unpack_array(event.ids).astype(int)
    with torch.no_grad():
        logits = policy(torch.tensor([prompt + ids.tolist()])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / heat, -1), ids, tokenizer


def check_alternatives(event, heat, k=3):
    scores, ids, tokenizer = recompute(event, heat)
    values, _ = scores.topk(k)
    stored = arrays.unpack_array(event.alternative_ids).astype(int).reshape(-1, k)
    logprobs = arrays.unpack_array(event.alternative_logprobs).astype(float).reshape(-1, k)
    assert len(stored) == len(ids) == event.length
    assert np.allclose(logprobs, values.numpy(), atol=2e-2, rtol=2e-3)
    assert np.allclose(scores.gather(1, torch.tensor(stored)).numpy(), values.numpy(), atol=1e-4)  # equal numbers may stand the other way around
    own = scores[torch.arange(len(ids)), torch.tensor(ids)]
    ranks = arrays.unpack_array(event.ranks).astype(int)
    assert ((scores > own[:, None] + 1e-5).sum(1).numpy() < ranks).all()
    assert (ranks <= 1 + (scores > own[:, None] - 1e-5).sum(1).numpy()).all()
    texts = arrays.unpack_texts(event.alternative_texts)
    different = np.unique(stored).tolist()
    assert [text for id_, text in zip(different, texts, strict=True) if id_ not in tokenizer.all_special_ids] == [
        tokenizer.decode([id_]) for id_ in different if id_ not in tokenizer.all_special_ids
    ]
    assert all(text for id_, text in zip(different, texts, strict=True) if id_ in tokenizer.all_special_ids)  # a special token has its name
    return own.numpy()


@pytest.mark.training
@pytest.mark.feature(42)
@pytest.mark.parametrize("more", [SPLIT, {"training__num_iterations": 2}], ids=["accumulated", "two passes"])
def test_alternatives_are_those_of_the_policy_that_sampled(tmp_path, more):
    """With a temperature, answers of different lengths, and in a first pass that is the loss's own or TRL's right after sampling."""
    rollouts, _ = trained(tmp_path, training__max_steps=2, training__warmup_steps=0, **KEPT, **more)
    first = [event for event in rollouts if event.step == 1]
    assert len(first) == 8
    assert len({event.length for event in first}) > 1
    for event in first:
        check_alternatives(event, HEAT)


@pytest.mark.training
@pytest.mark.feature(41)
def test_the_samplers_log_probabilities_and_their_distance(tmp_path):
    """What transformers' cached sampling said of each token is what the policy says of it, and the metric is the distance of what is stored."""
    rollouts, metrics = trained(tmp_path, training__max_steps=2, **KEPT, **SPLIT)
    for step in (1, 2):
        gaps = []
        for event in (event for event in rollouts if event.step == step):
            sampler, trainer = arrays.unpack_array(event.sampler_logprobs), arrays.unpack_array(event.logprobs)
            assert sampler.dtype == trainer.dtype == np.float32
            assert len(sampler) == len(trainer) == event.length
            gaps.append(np.abs(trainer - sampler))
            if step == 1:
                scores, ids, _ = recompute(event, HEAT)
                assert np.allclose(sampler, scores[torch.arange(len(ids)), torch.tensor(ids)].numpy(), atol=1e-3)
        everything = np.concatenate(gaps)
        assert metrics[step]["sampling/sampling_logp_difference/mean"] == pytest.approx(everything.mean(), rel=1e-3, abs=1e-9)
        assert metrics[step]["sampling/sampling_logp_difference/max"] == pytest.approx(everything.max(), rel=1e-3, abs=1e-9)
        assert everything.max() < 1e-2


@pytest.mark.training
def test_a_sampler_that_differs_is_seen_and_the_loss_stays(tmp_path, monkeypatch):
    """A sampler whose word on one token is 0.25 nats off: stored and measured as that, and nothing that is trained on changes."""
    from trainers.adapters.grpo import GRPOAdapter

    plain, before = trained(tmp_path / "plain", training__max_steps=2)
    assert {(event.sampler_logprobs, event.ranks, event.alternative_ids) for event in plain} == {(b"", b"", b"")}
    assert not any(name.startswith("sampling/") for values in before.values() for name in values)
    sampled = GRPOAdapter._generate_single_turn

    def off(self, prompt_ids, *args, **rest):
        ids, logprobs = sampled(self, prompt_ids, *args, **rest)
        return ids, [[row[0] - 0.25, *row[1:]] for row in logprobs]

    monkeypatch.setattr(GRPOAdapter, "_generate_single_turn", off)
    kept = {name: value for name, value in KEPT.items() if name != "training__temperature"}
    rollouts, after = trained(tmp_path / "kept", training__max_steps=2, **kept)
    for step in (1, 2):
        assert [after[step][name] for name in ("loss", "grad_norm", "entropy")] == [before[step][name] for name in ("loss", "grad_norm", "entropy")]
        assert after[step]["sampling/sampling_logp_difference/max"] == pytest.approx(0.25, abs=1e-3)
    for event in rollouts:
        gap = arrays.unpack_array(event.logprobs) - arrays.unpack_array(event.sampler_logprobs)
        assert gap[0] == pytest.approx(0.25, abs=1e-3)
        assert np.abs(gap[1:]).max(initial=0) < 1e-2


@pytest.mark.training
@pytest.mark.feature(42)
def test_held_out_prompts_keep_them_too_and_a_share_is_drawn_by_the_seed(tmp_path):
    more = {
        "training__max_steps": 3,
        "telemetry__alternatives_share": 0.5,
        "telemetry__alternatives": 3,
        "evaluation": {"prompts": 8, "temperature": HEAT},
    }
    rollouts, _ = trained(tmp_path, **more)
    for event in rollouts:
        key = ("train", event.step, event.group) if event.phase == "train" else ("heldout", event.group)
        assert bool(event.alternative_ids) == keeps_alternatives(0.5, 0, *key)
    before = [event for event in rollouts if event.phase == "heldout" and event.step == 0 and event.alternative_ids]
    assert 0 < len(before) < 8
    for event in before:
        check_alternatives(event, HEAT)


@pytest.mark.parametrize("tile", [7, 64, 1000])
def test_tiles_of_the_vocabulary_give_what_all_logits_give(monkeypatch, tile):
    monkeypatch.setattr(top_tokens, "VOCABULARY", tile)
    monkeypatch.setattr(top_tokens, "ROWS", 4)
    torch.manual_seed(0)
    hidden, weight, bias, chosen = torch.randn(10, 8), torch.randn(100, 8), torch.randn(100), torch.randint(100, (10,))

    def scale(logits):
        return 3 * torch.tanh(logits / 3) / HEAT

    whole = top_tokens.find_top_tokens(scale(hidden @ weight.T + bias), chosen, 5)
    tiled = top_tokens.find_top_tokens_in_tiles(hidden, weight, bias, chosen, 5, scale)
    assert torch.equal(whole.ids, tiled.ids)
    assert torch.equal(whole.ranks, tiled.ranks)
    assert torch.allclose(whole.logprobs, tiled.logprobs, atol=1e-5)


def test_more_than_a_reader_unpacks_is_not_written(monkeypatch):
    class Named:
        def name(self, id_):
            return "\u202e" * 200

    found = Alternatives(np.array([[5, 3]]), np.array([[-0.5, -1.0]], np.float32), np.array([1]))
    packed = pack_alternatives(fill_up(found, 3), Named())
    assert arrays.unpack_array(packed["ranks"]).tolist() == [1, 0, 0]
    assert np.isnan(arrays.unpack_array(packed["alternative_logprobs"])[2:]).all()
    assert [len(text) for text in arrays.unpack_texts(packed["alternative_texts"])] == [64, 64, 64]  # of ids 0, 3 and 5
    monkeypatch.setattr(arrays, "MOST_VALUES", 1)
    assert pack_alternatives(found, Named()) == {}
    assert pack_alternatives(None, Named()) == {}


@pytest.mark.parametrize("data", [b"x", b"tz", b"tz" + b"\0" * 9])
def test_damaged_texts_are_refused(data):
    with pytest.raises(arrays.PackError):
        arrays.unpack_texts(data)


def test_the_size_is_said_before_the_launch(tmp_path):
    plain = make_spec(tmp_path, training__max_completion_length=50, training__max_steps=10)
    assert "alternatives_bytes_at_most" not in compute_batch_figures(plain)
    figures = compute_batch_figures(
        make_spec(tmp_path, training__max_completion_length=50, training__max_steps=10, telemetry__alternatives_share=0.5)
    )
    assert figures["rollouts_with_alternatives"] == 40
    assert figures["alternatives_bytes_per_rollout_at_most"] == 50 * (5 * 8 + 2)
    assert figures["alternatives_bytes_at_most"] == 40 * 50 * 42
