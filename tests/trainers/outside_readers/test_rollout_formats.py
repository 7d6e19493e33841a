"""Rollouts of TRL, prime-rl, SkyRL, slime, NeMo-RL and OpenRLHF: groups, rewards, turns and calls arrive, and what is missing stays unknown."""

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.trainers.outside_readers.reading import (
    FIXTURES,
    events_in,
    metrics_of,
    open_spool,
    places_of,
    read_once,
    rollouts_of,
    warnings_of,
    write_lines,
)
from trainers.contract import arrays
from trainers.contract.events import Message, Rollout
from trainers.outside.readers.base import BrokenRow, SourceError
from trainers.outside.readers.torch_archive import load_torch_archive

ASKED = [{"role": "system", "content": "You solve sums."}, {"role": "user", "content": "What is 3 + 4?"}]
CALL = {"id": "c1", "name": "add", "arguments": '{"a": 3, "b": 4}'}
CALLED = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call>'


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def said_by(one: Rollout) -> list[tuple[str, str]]:
    return [(turn.role, one.completion[turn.start : turn.end]) for turn in one.turns]


@pytest.mark.feature(33)
def test_trl_completions_keep_their_calls_and_only_their_own_arguments(keep: Path) -> None:
    first, second = rollouts_of(read_once(keep, FIXTURES / "trl"))
    assert [(one.step, one.group, one.sample, one.advantage) for one in (first, second)] == [(12, 0, 0, 0.7071), (12, 0, 1, -0.7071)]
    assert first.prompt == [Message("system", "You solve sums."), Message("user", "What is 3 + 4?")]
    assert said_by(first) == [("assistant", CALLED + "\n"), ("tool", "7\n"), ("assistant", "<answer>7</answer>")]
    assert said_by(second)[0] == ("assistant", '<tool_call>\n{"name": "look_up", "arguments": {"page": "sums"}}\n</tool_call>\n')
    assert (first.rewards, first.reward, second.reward, first.length) == ({"correct": 1.0, "brief": 0.5}, 1.5, 0.0, None)


def test_trl_rewards_are_summed_with_the_weights_that_are_given(keep: Path) -> None:
    first, _ = rollouts_of(read_once(keep, FIXTURES / "trl", weights={"correct": 2.0, "brief": 0.2}))
    assert first.reward == pytest.approx(2.1)


def test_a_parquet_file_that_is_not_whole_yet_is_waited_for(tmp_path: Path, keep: Path) -> None:
    folder = tmp_path / "completions"
    folder.mkdir()
    whole = (FIXTURES / "trl" / "completions" / "completions_00012.parquet").read_bytes()
    (folder / "completions_00012.parquet").write_bytes(whole)
    (folder / "completions_00013.parquet").write_bytes(whole[:4000])
    spool = open_spool(keep, folder)
    spool.take_new(final=False)
    assert len(rollouts_of(events_in(keep))) == 2
    (folder / "completions_00013.parquet").write_bytes(whole)
    spool.take_new(final=False)
    (folder / "completions_00014.parquet").write_bytes(b"PAR1 and no more")
    spool.take_new(final=True)
    spool.close()
    assert [one.step for one in rollouts_of(events_in(keep))] == [12, 12, 13, 13]
    assert warnings_of(events_in(keep))[0].startswith("completions_00014.parquet was left out: it is not a whole parquet file")


def episode(answer: str, score: float | None, group: str = "g1", **trace: Any) -> dict[str, Any]:
    """As ``Episode.to_record`` writes it: a call, its result, an answer; a branch that led nowhere before them."""
    nodes = [
        {"message": ASKED[0], "sampled": False, "token_ids": [1, 2], "mask": [False, False]},
        {"parent": 0, "message": ASKED[1], "sampled": False, "token_ids": [3], "mask": [False]},
        {"parent": 1, "message": {"role": "assistant", "content": "lost"}, "sampled": True, "token_ids": [9], "mask": [True], "logprobs": [-1.0]},
        {
            "parent": 1,
            "message": {"role": "assistant", "content": "", "reasoning_content": "add them", "tool_calls": [CALL]},
            "sampled": True,
            "token_ids": [4, 5, 6],
            "mask": [False, True, True],
            "logprobs": [-0.5, -0.25],
            "advantages": [0.5, 0.5],
        },
        {"parent": 3, "message": {"role": "tool", "tool_call_id": "c1", "content": "7"}, "token_ids": [7], "mask": [False]},
        {
            "parent": 4,
            "message": {"role": "assistant", "content": answer},
            "sampled": True,
            "token_ids": [8, 9],
            "mask": [False, True],
            "logprobs": [-2.0],
            "advantages": [0.5],
        },
    ]
    task = {"type": "Sum", "data": {"question": "What is 3 + 4?", "answer": "7"}}
    rewards = {"correct": {"score": score, "weight": 2.0}, "judge": {"score": 0.5, "weight": 0.0}} if score is not None else {"correct": None}
    one = {"task": task, "agent": {"config": {}, "trainable": True}, "nodes": nodes, "rewards": rewards, "metrics": {"turns": 2.0}}
    one |= {"calls": [{"node": 5, "finish_reason": "stop"}], "is_completed": True, **trace}
    judge = {"task": task, "agent": {"config": {}, "trainable": False}, "nodes": nodes[:1]}
    return {"id": "e", "env": {"id": "sums"}, "task": task, "group": {"id": group}, "traces": [one, judge]}


@pytest.mark.feature(33)
def test_prime_rl_episodes_and_metrics(tmp_path: Path, keep: Path) -> None:
    place = tmp_path / "rollouts" / "step_3"
    rows = [
        episode("<answer>7</answer>", 1.0),
        episode("no", None, "g2", stop_condition="max_turns"),
        episode("8", 0.0, stop_condition="max_output_tokens"),
    ]
    write_lines(place / "train" / "effective" / "traces.jsonl", *rows)
    write_lines(place / "train" / "all" / "traces.jsonl", *rows, *rows)  # what effective repeats
    write_lines(place / "eval" / "effective" / "traces.jsonl", rows[0])
    write_lines(tmp_path / "metrics.jsonl", {"step": 3, "time": 1.7e9, "reward/all/mean": 0.5}, {"step": "x"})
    events = read_once(keep, tmp_path)
    assert places_of(events) == [(3, "train", 0, 0), (3, "train", 1, 0), (3, "train", 0, 1), (3, "heldout", 0, 0)]
    first, second, third, _ = rollouts_of(events)
    assert said_by(first) == [("assistant", f"<think>\nadd them\n</think>\n\n{CALLED}\n"), ("tool", "7\n"), ("assistant", "<answer>7</answer>")]
    assert (first.reward, first.rewards, first.reference) == (2.0, {"correct": 1.0, "judge": 0.5, "turns": 2.0}, "7")
    assert (first.advantage, first.length, first.finish_reason) == (0.5, 3, "stop")
    assert (second.reward, second.finish_reason, third.finish_reason) == (None, "turns", "length")
    assert metrics_of(events) == {3: {"reward/all/mean": 0.5}}
    assert warnings_of(events) == ["metrics.jsonl, line 2 was left out: step is not a step: 'x'"]


def test_prime_rl_rows_before_its_episodes(tmp_path: Path, keep: Path) -> None:
    done = {"completion": [{"role": "assistant", "content": "7"}], "prompt": ASKED, "reward": 1.0, "is_truncated": True, "metrics": {"correct": 1.0}}
    write_lines(tmp_path / "step_0" / "train_rollouts.jsonl", {"example_id": 4, "answer": "7", **done, "token_usage": {"final_output_tokens": 3.0}})
    write_lines(tmp_path / "step_1" / "train" / "effective" / "traces.jsonl", episode("7", 1.0)["traces"][0])
    older, trace = rollouts_of(read_once(keep, tmp_path))
    assert (older.step, older.reward, older.finish_reason, older.length, older.reference) == (0, 1.0, "length", 3, "7")
    assert (trace.step, trace.reward, trace.completion[-1]) == (1, 2.0, "7")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "nodes is not a list"),
        ([{"parent": 0, "message": ASKED[0]}], "parents|not a list"),
        ([{"message": {"role": 3}}], "not a message"),
        ([{"parent": 7, "message": ASKED[0]}], "parents"),
    ],
)
def test_a_trace_that_is_no_graph_is_named(tmp_path: Path, keep: Path, nodes: list[Any], words: str) -> None:
    broken = {"traces": [{"nodes": nodes, "rewards": {}}]}
    write_lines(tmp_path / "step_1" / "train" / "effective" / "traces.jsonl", episode("7", 1.0), broken, episode("8", 1.0))
    events = read_once(keep, tmp_path)
    assert len(rollouts_of(events)) == 2 or nodes == [{"parent": 0, "message": ASKED[0]}]
    assert all("line 2 was left out" in one for one in warnings_of(events))


@pytest.mark.feature(33)
def test_skyrl_evaluations(tmp_path: Path, keep: Path) -> None:
    asked = "<|im_start|>system\nYou solve sums.<|im_end|>\n<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"
    answer = f"{CALLED}<|im_end|>\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n7<|im_end|>"
    row = {
        "input_prompt": asked,
        "output_response": answer,
        "score": [0.0, 0.0, 1.0],
        "stop_reason": "stop",
        "env_class": "sums",
        "data_source": "sums",
    }
    row["env_extras"] = {"reward_spec": {"ground_truth": "7"}}
    folder = tmp_path / "dumped_evals" / "global_step_5_evals"
    write_lines(folder / "sums.jsonl", row, {**row, "output_response": "8", "score": 0.0, "stop_reason": "length"}, {**row, "score": ["x"]})
    write_lines(folder / "aggregated_results.jsonl", {"eval/all/avg_score": 0.5})
    events = read_once(keep, tmp_path)
    first, second = rollouts_of(events)
    assert places_of(events) == [(5, "heldout", 0, 0), (5, "heldout", 0, 1)]
    assert first.prompt == [Message("system", "You solve sums."), Message("user", "What is 3 + 4?")]
    assert [role for role, _ in said_by(first)] == ["assistant", "tool", "assistant"]
    assert (first.reward, first.length, first.reference, first.completion[-1], second.finish_reason, second.length) == (
        1.0,
        3,
        "7",
        "7",
        "length",
        None,
    )
    assert metrics_of(events)[5]["heldout/all/avg_score"] == 0.5
    assert len(warnings_of(events)) == 1


def test_slime_and_miles_rollouts(keep: Path) -> None:
    first, second = rollouts_of(read_once(keep, FIXTURES / "slime"))
    assert (first.step, first.completion, first.reward, first.finish_reason, first.length, first.reference) == (3, "7", 1.0, "stop", 2, "7")
    assert (second.reward, second.rewards, second.filtered) == (0.0, {"score": 0.0, "format": 1.0}, "removed from the loss (remove_sample)")
    assert (second.group, second.sample, second.finish_reason) == (0, 1, "length")


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_pickle_cannot_run_anything(tmp_path: Path) -> None:
    for payload in (pickle.dumps({"samples": [Malicious(tmp_path / "ran")]}), b"cos\nsystem\n(S'touch ran'\ntR.", b"\x80\x04garbage", b""):
        with zipfile.ZipFile(tmp_path / "1.pt", "w") as archive:
            archive.writestr("x/data.pkl", payload)
        try:
            load_torch_archive(tmp_path / "1.pt")
        except BrokenRow:
            continue
    assert not (tmp_path / "ran").exists()


def nemo_row(texts: Any, ids: list[int], mask: list[int], reward: float = 1.0, **more: Any) -> dict[str, Any]:
    width = len(ids)
    numbers = {"advantages": [[0.5 * one for one in mask]], "generation_logprobs": [[-0.5] * width], "prev_logprobs": [[-0.25] * width]}
    row = {
        "content": [texts],
        "rewards": [reward],
        "input_lengths": [width - 1],
        "token_ids": [ids],
        "token_loss_mask": [mask],
        "sample_loss_mask": [1.0],
    }
    return {**row, **numbers, "idx": 0, **more}


@pytest.mark.feature(33)
def test_nemo_rl_training_and_validation(tmp_path: Path, keep: Path) -> None:
    turns = ["What is 3 + 4?", CALLED, "7", "<answer>7</answer>"]
    write_lines(
        tmp_path / "exp_001" / "train_data_step2.jsonl",
        nemo_row(turns, [1, 2, 3, 4, 5, 0], [0, 1, 1, 0, 1, 0]),
        nemo_row(["What is 3 + 4?", "8"], [1, 2, 3, 0, 0, 0], [0, 1, 1, 0, 0, 0], 0.0, sample_loss_mask=[0.0], input_lengths=[3]),
        nemo_row("only what the policy wrote", [5, 6, 0], [0, 1, 0]),
        nemo_row(turns, [1, 2], [0, 1, 1]),
    )
    write_lines(
        tmp_path / "exp_001" / "val_data_step2.jsonl", {"content": [[*ASKED, {"role": "assistant", "content": "7"}]], "rewards": [1.0], "idx": 0}
    )
    events = read_once(keep, tmp_path)
    first, second, alone, held = rollouts_of(events)
    assert said_by(first) == [("assistant", CALLED + "\n"), ("tool", "7\n"), ("assistant", "<answer>7</answer>")]
    assert (first.prompt, first.reward, first.advantage, first.length) == ([Message("user", "What is 3 + 4?")], 1.0, 0.5, 3)
    assert (second.group, second.sample, second.filtered[:8], second.completion) == (0, 1, "left out", "8")
    assert (alone.prompt, alone.completion, alone.group) == ([], "only what the policy wrote", 1)
    assert (held.phase, held.prompt[0].role, held.completion) == ("heldout", "system", "7")
    assert "token_loss_mask is not a list of 2 numbers" in warnings_of(events)[0]


def test_openrlhf_outputs_of_batch_inference(tmp_path: Path, keep: Path) -> None:
    rows = [{"input": "user\n3 + 4?\nassistant\n", "output": text, "reward": reward} for text, reward in (("7</s>", 0.9), ("8", 0.1))]
    write_lines(tmp_path / "iter_2.jsonl", *rows, {"input": "a", "output": "b"})
    first, second, third = rollouts_of(read_once(keep, tmp_path))
    assert [(one.step, one.group, one.sample, one.reward) for one in (first, second, third)] == [(2, 0, 0, 0.9), (2, 0, 1, 0.1), (2, 1, 0, None)]
    assert (first.completion, first.prompt[0].content, third.rewards) == ("7", "3 + 4?", {})
    assert rollouts_of(read_once(keep / "file", tmp_path / "iter_2.jsonl"))[0].completion == "7"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel as Split

    alphabet = sorted(Split.alphabet())
    made = Tokenizer(BPE({letter: place for place, letter in enumerate(alphabet)}, []))
    made.decoder, made.pre_tokenizer = ByteLevel(), Split(add_prefix_space=False)
    made.add_special_tokens(["<|im_end|>"])
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path


def test_with_a_tokenizer_tokens_come_with_what_was_measured_on_them(tmp_path: Path, keep: Path, tokenizer: Path) -> None:
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(str(tokenizer))
    text = "é 7 🙂"
    ids = made.encode(text).ids
    end = made.token_to_id("<|im_end|>")
    width = len(ids) + 2
    row = nemo_row(["3 + 4?", text], [1, *ids, end, 0], [0, *[1] * (len(ids) + 1), 0], generation_logprobs=[[-0.5] * (width + 1)])
    row |= {"prev_logprobs": [[-0.25] * (width + 1)], "input_lengths": [width]}
    write_lines(tmp_path / "train_data_step1.jsonl", row)
    [one] = rollouts_of(read_once(keep, tmp_path, tokenizer=str(tokenizer.parent)))
    assert one.completion == text
    assert arrays.unpack_array(one.ids).tolist() == [*ids, end]
    assert arrays.unpack_array(one.lengths).tolist() == [0, 1, 1, 1, 1, 0, 0, 0, 1, 0]  # two bytes of é, four of the smiley, a special token
    assert arrays.unpack_array(one.logprobs).tolist() == [-0.25] * (len(ids) + 1)
    assert arrays.unpack_array(one.sampler_logprobs).tolist() == [-0.5] * (len(ids) + 1)
    with pytest.raises(SourceError, match=r"name tokenizer\.json"):
        open_spool(keep / "other", tmp_path, tokenizer="nobody/nothing")


@pytest.mark.parametrize("seed", range(3))
def test_arrays_are_packed_as_the_contract_packs_them(seed: int) -> None:
    import numpy as np

    from trainers.outside.readers.packed_values import pack_token_ids, pack_values

    draw = np.random.default_rng(seed)
    for size in (0, 1, 5, 300):
        for code, values in (
            ("e", draw.normal(0, 1e5, size)),
            ("f", draw.normal(0, 1, size)),
            ("B", draw.integers(0, 2, size)),
            ("H", draw.integers(0, 65536, size)),
        ):
            assert pack_values(values.tolist(), code) == arrays.pack_array(values, code)
        for most in (100, 200_000):
            ids = draw.integers(0, most, size).tolist()
            assert pack_token_ids(ids) == arrays.pack_ids(ids)
    assert np.isnan(arrays.unpack_array(pack_values([None, 1.0], "f"))[0])


def test_reading_needs_neither_numpy_nor_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    write_lines(tmp_path / "1.jsonl", {"input": "a", "output": "b", "score": 1.0})
    script = (
        "import sys\nsys.modules.update(dict.fromkeys(('numpy', 'torch', 'transformers', 'pyarrow', 'pydantic', 'sqlite3')))\n"
        "from pathlib import Path\nfrom trainers.outside.readers.formats import find_format\n"
        "from trainers.outside.readers.base import ReaderOptions\n"
        "from trainers.outside import source_sending, source_arguments\n"
        f"reader = find_format('auto', Path({json.dumps(str(tmp_path))})).open(Path({json.dumps(str(tmp_path))}), {{}}, ReaderOptions())\n"
        "assert len([one for items in reader.read_new_items(True) for one in items]) == 1"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
