"""Vectors of completions: those of a plain forward pass, whatever they are batched with; limits; and folders that are no encoders."""

import base64
import io
import json
import sys

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerFast

from trainers.contract.encoder_folder import inspect_encoder_folder, is_encoder_folder
from trainers.contract.problems import SpecError
from trainers.policies import embedding, tiny
from trainers.policies.embedding import EmbeddedItem, embed_rows, load_embedder

WORDS = ["seven", "plus", "four", "is", "eleven", "no", "the", "answer", "cat", "sat"]
TEXTS = ["the answer is eleven", "no", "seven plus four is eleven no the answer is seven plus four", "the cat sat"]


def write_encoder(folder, hidden=32, longest=64):
    """A BERT with random weights and a tokenizer of whole words."""
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **marks).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=4 + len(WORDS), max_position_embeddings=longest, **shape)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


def items(*texts, prompt="What is seven plus four?"):
    return [EmbeddedItem([("user", prompt)], text) for text in texts]


def embed(embedder, *texts, **more):
    return embed_rows(embedder, [embedder.tokenize(item) for item in items(*texts, **more)])


@pytest.mark.feature(53)
def test_a_policys_vectors_are_the_mean_of_its_last_hidden_states_over_the_completion():
    folder = tiny.ensure_untrained_policy()
    found = embed(load_embedder("policy", folder), *TEXTS)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    prompt = [{"role": "user", "content": "What is seven plus four?"}]
    before = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    for text, vector in zip(TEXTS, found, strict=True):
        ids = torch.tensor([before + tokenizer.encode(text, add_special_tokens=False)])  # alone, without padding
        with torch.no_grad():
            states = model(ids, output_hidden_states=True).hidden_states[-1][0, len(before) :]
        expected = torch.nn.functional.normalize(states.mean(0), dim=0).numpy()
        np.testing.assert_allclose(vector, expected, atol=1e-5)


@pytest.mark.feature(53)
def test_an_encoders_vectors_are_the_mean_over_all_its_tokens(encoder):
    found = embed(load_embedder("encoder", encoder), *TEXTS)
    model, tokenizer = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(vector, torch.nn.functional.normalize(states.mean(0), dim=0).numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["policy", "encoder"])
def test_padding_and_neighbours_do_not_change_a_vector(kind, encoder, monkeypatch):
    embedder = load_embedder(kind, encoder if kind == "encoder" else tiny.ensure_untrained_policy())
    together = embed(embedder, *TEXTS)
    np.testing.assert_allclose(together, np.concatenate([embed(embedder, text) for text in TEXTS]), atol=1e-5)
    monkeypatch.setattr(embedding, "BATCH_TOKENS", 40)
    assert len(list(embedding.split_batches([embedder.tokenize(item) for item in items(*TEXTS)]))) > 1
    np.testing.assert_allclose(together, embed(embedder, *TEXTS), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


def test_what_is_longer_than_the_model_reads_is_cut_and_counted(encoder):
    for kind, folder, room in (("policy", tiny.ensure_untrained_policy(), tiny.CONTEXT), ("encoder", encoder, 64)):
        embedder = load_embedder(kind, folder)
        for prompt in ("What?", "What? " * 500):
            row = embedder.tokenize(EmbeddedItem([("user", prompt)], "the answer is " * 400))
            assert (row.cut, len(row.ids) <= room) == (True, True)
            assert row.start < len(row.ids)
        assert not embedder.tokenize(EmbeddedItem([("user", "What? " * 500)], "no")).cut
    assert np.isfinite(
        embed(load_embedder("policy", tiny.ensure_untrained_policy()), "", "the answer is " * 400)
    ).all()  # an empty one has its end token


def test_a_prompt_that_the_chat_template_refuses_is_read_as_text():
    folder = tiny.ensure_untrained_policy()
    embedder = load_embedder("policy", folder)
    embedder.tokenizer.chat_template = "{{ raise_exception('no') }}"
    assert embedder.tokenize(items("no")[0]).start > 0


def test_the_command_answers_a_line_for_a_line(encoder, monkeypatch):
    def line(*texts):
        asked = [{"prompt": [["user", "x"]], "completion": text} for text in texts]
        return json.dumps({"folder": str(encoder), "kind": "encoder", "items": asked}).encode()

    said = io.StringIO()
    monkeypatch.setattr(sys, "stdout", said)
    embedding.answer_embedding_requests([line(*TEXTS), line("no")])
    first, second = [json.loads(text) for text in said.getvalue().splitlines()]
    vectors = np.frombuffer(base64.b64decode(first["vectors"]), dtype="<f2").reshape(len(TEXTS), first["dimension"])
    assert (first["dimension"], first["cut"], first["device"]) == (32, 0, "cpu")
    np.testing.assert_array_equal(vectors[1], np.frombuffer(base64.b64decode(second["vectors"]), dtype="<f2"))
    with pytest.raises(SpecError, match="more than"):
        embedding.parse_embedding_request(line(*["no"] * (embedding.MOST_ITEMS + 1)))
    with pytest.raises(SpecError, match="not there any more"):
        embedding.answer_embedding_requests([line("no").replace(b"encoder0", b"nowhere")])


def test_folders_that_are_no_encoders_are_refused_with_the_reason(encoder, tmp_path):
    assert inspect_encoder_folder(encoder, "source").problems == []
    policy = tiny.ensure_untrained_policy()
    assert not is_encoder_folder(policy)
    assert "not a sentence encoder" in str(inspect_encoder_folder(policy, "source").problems)
    other = write_encoder(tmp_path / "other")
    (other / "1_Pooling").mkdir()
    pooling = other / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}))
    assert "does not pool by the mean" in str(inspect_encoder_folder(other, "source").problems)
    pooling.write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    assert inspect_encoder_folder(other, "source").problems == []
    (other / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    assert "Dense" in str(inspect_encoder_folder(other, "source").problems)
    (other / "modules.json").unlink()
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "x.Y"}}))
    assert "run code" in str(inspect_encoder_folder(other, "source").problems)
