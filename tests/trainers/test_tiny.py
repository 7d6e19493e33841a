"""The built-in policy: the same everywhere, and one tokenizer that fits all built-in tasks."""

import filecmp
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.tasks import registry


@pytest.fixture(scope="module")
def folder():
    return tiny.ensure_untrained_policy()


@pytest.fixture(scope="module")
def tokenizer(folder):
    return policies.load_tokenizer(folder)


def test_it_is_the_same_wherever_it_is_built(folder, tmp_path):
    tiny.build_tiny_policy(tmp_path, tiny.build_core_family())
    names = [path.name for path in folder.iterdir()]
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= set(names)
    assert filecmp.cmpfiles(folder, tmp_path, names, shallow=False)[0] == names


def test_it_has_half_a_million_parameters(folder):
    model = policies.load_model(folder, policies.torch.float32)
    assert 450_000 < model.num_parameters() < 550_000


def test_its_tags_are_single_tokens_that_stay_in_the_text(tokenizer):
    for tag in tiny.TAGS:
        ids = tokenizer.encode(tag, add_special_tokens=False)
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == tag


def test_it_splits_numbers_into_digits(tokenizer):
    assert [tokenizer.decode([id_]) for id_ in tokenizer.encode("120+3", add_special_tokens=False)] == ["1", "2", "0", "+", "3"]


def test_a_prompt_is_the_beginning_of_its_conversation(tokenizer):
    prompt = [{"role": "user", "content": "Max has 3 apples. How many?"}]
    answer = [{"role": "assistant", "content": "<answer>3</answer>"}]
    start = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(prompt + answer, return_dict=False)
    assert whole[: len(start)] == start
    assert tokenizer.decode(whole[len(start) :]) == "<answer>3</answer><|im_end|>\n"
    both = tokenizer.apply_chat_template(prompt + answer, return_dict=True, return_assistant_tokens_mask=True)
    assert sum(both["assistant_masks"]) == len(whole) - len(start) - 1  # all but the line break after the end token


@pytest.mark.parametrize("name", ["mini_gsm", "kb", "calendar"])
def test_gold_answers_of_every_difficulty_fit_the_context(tokenizer, name):
    task = registry.get_task(name)
    for difficulty in task.difficulties:
        for example in task.examples("heldout", 50, 0, difficulty):
            chat = [{"role": message.role, "content": message.content} for message in example.prompt]
            chat.append({"role": "assistant", "content": task.gold(example)})
            assert len(tokenizer.apply_chat_template(chat, return_dict=False)) <= tiny.CONTEXT


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_it_can_write_any_text(tokenizer, text):
    if any(token in text for token in (tiny.PAD, tiny.START, tiny.END)):
        return
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_two_builders_at_once_build_once(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    written = []

    def write(folder):
        written.append(folder)
        (folder / "file").write_text("whole")

    threads = [threading.Thread(target=tiny.ensure_cached_folder, args=("policy", write)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1
    assert (tmp_path / "policy" / "file").read_text() == "whole"


def test_a_builder_that_fails_leaves_nothing_that_looks_built(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))

    def fail(folder):
        (folder / "half").write_text("")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        tiny.ensure_cached_folder("policy", fail)
    assert not (tmp_path / "policy").exists()
    assert tiny.ensure_cached_folder("policy", lambda folder: (folder / "file").touch()) == tmp_path / "policy"
    assert [path.name for path in (tmp_path / "policy").iterdir()] == ["file"]
