"""What is found out before a model loads: each way a run can be impossible, in under a second, without torch."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trainers.checks.dryrun import about_tokens
from trainers.checks.model_lookup import look_up_model
from trainers.checks.preflight import TEMPLATE_TOKENS, PreflightReport, run_preflight_checks
from trainers.contract.events import Message
from trainers.contract.spec import TINY_CONTEXT, HubPolicy, Problem, parse_spec
from trainers.tasks import registry
from trainers.tasks.base import Example, Reward, Task

ROOT = Path(__file__).resolve().parents[2]


def make_report(policy_pending: bool = False, **parts: Any) -> PreflightReport:
    spec = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "output": "run", **parts}
    return run_preflight_checks(parse_spec(spec), policy_pending)


def one(problems: list[Problem], field: str) -> Problem:
    found = [problem for problem in problems if problem.field == field]
    assert len(found) == 1, problems
    assert found[0].fix
    return found[0]


def safetensors(tensors: dict[str, int]) -> bytes:
    """A file of float32 vectors, laid out by hand as the format says: eight bytes of length, the header, the data."""
    header, end = {}, 0
    for name, count in tensors.items():
        header[name] = {"dtype": "F32", "shape": [count], "data_offsets": [end, end + 4 * count]}
        end += 4 * count
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


WHOLE = safetensors({"weight": 6})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "policy"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 512}))
    (path / "model.safetensors").write_bytes(safetensors({"weight": 6, "bias": 2}))
    (path / "tokenizer.json").write_text("{}")
    (path / "tokenizer_config.json").write_text("{}")
    (path / "chat_template.jinja").write_text("{{ messages }}")
    return path


def of_folder(folder: Path, **parts: Any) -> PreflightReport:
    return make_report(policy={"kind": "folder", "path": str(folder)}, **parts)


def test_a_good_run_has_no_problem_and_no_warning():
    report = make_report()
    assert report.ok
    assert report.warnings == []


@pytest.mark.feature(3)
def test_the_report_is_json_with_everything_a_page_shows():
    data = json.loads(json.dumps(make_report().as_json(), allow_nan=False))
    assert data["ok"] is True
    assert data["batch"]["completions_per_step"] == 64
    assert [sample["prompt"][0]["role"] for sample in data["samples"]] == ["user"] * 4
    assert {run["kind"] for run in data["gold"]} == {"gold", "empty", "wrong"}


def test_batch_arithmetic_of_grpo():
    training = {"trainer": "grpo", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "steps_per_generation": 8}
    training |= {"num_generations": 16, "num_iterations": 2, "max_steps": 100, "prompts": 50, "max_completion_length": 30}
    assert make_report(training=training, evaluation={"every": 30, "prompts": 10}).batch == {
        "steps": 100,
        "prompts": 50,
        "prompts_per_step": 2.0,
        "completions_per_step": 32,
        "generation_batch": 64,
        "prompts_per_generation_batch": 4,
        "tokens_per_step_at_most": 960,
        "total_rollouts": 1600,  # a batch of 64 feeds 2 x 8 micro-batches; 100 steps use 400 of them, 25 batches
        "epochs": 2.0,
        "heldout_measurements": 5,  # before, 30, 60, 90, after
        "heldout_rollouts": 50,
    }


def test_batch_arithmetic_of_sft_and_dpo():
    sft = make_report(training={"trainer": "sft", "max_steps": 10, "demonstrations": 160}).batch
    assert (sft["sequences_per_step"], sft["epochs"], sft["tokens_per_step_at_most"]) == (32, 2.0, 4096)
    dpo = make_report(training={"trainer": "dpo"}).batch
    assert (dpo["pairs_per_step"], dpo["sequences_per_step"], dpo["sampled_answers"]) == (32, 64, 6000)


def test_the_gold_answer_gets_everything_and_the_wrong_one_does_not():
    for task in ("mini_gsm", "kb", "calendar"):
        runs = make_report(task={"name": task}).gold
        assert {run.reward for run in runs if run.kind == "gold"} == {1.0}
        assert {run.reward for run in runs if run.kind != "gold"} == {0.0}
        assert all(run.rewards["format"] == 1.0 for run in runs if run.kind == "wrong")


def test_an_sft_run_shows_the_demonstrations_it_learns_from():
    assert all(sample.completion.startswith("<think>") for sample in make_report(training={"trainer": "sft"}).samples)


@pytest.mark.parametrize(
    ("task", "field", "fix"),
    [
        ({"name": "gsm"}, "task.name", "use one of mini_gsm, kb, calendar"),
        ({"name": "kb", "difficulty": "mean"}, "task.difficulty", "use one of easy, medium, hard"),
        ({"name": "kb", "rewards": {"corect": 1}}, "task.rewards.corect", "did you mean correct?"),
        ({"name": "kb", "rewards": {"zeal": 1}}, "task.rewards.zeal", "use one of correct, format, brevity, searches"),
        ({"name": "kb", "rewards": {"correct": 0}}, "task.rewards", "give at least one function a weight"),
    ],
)
def test_a_task_that_is_not_there_is_refused(task, field, fix):
    assert one(make_report(task=task).problems, field).fix.startswith(fix)


def test_a_method_is_refused_while_there_are_none():
    assert one(make_report(methods=[{"name": "gspo"}]).problems, "methods.0.name").value == "gspo"


@pytest.mark.feature(13)
def test_weights_that_do_not_tell_right_from_wrong_are_warned_about():
    report = make_report(task={"name": "mini_gsm", "rewards": {"correct": 0, "format": 1}})
    assert report.ok
    assert "a wrong answer is rewarded with 1.0" in one(report.warnings, "task.rewards").message


class Broken(Task):
    name, title, summary, demonstrations = "broken", "Broken", "Every kind of mistake a task's author can make.", "None."
    difficulties = {"easy": "it is not"}
    rewards = {
        "correct": Reward(lambda text, example: float(text == example.reference), "Right.", 1.0),
        "raises": Reward(lambda text, example: 1 / 0, "Raises.", 0.0),
        "word": Reward(lambda text, example: "high", "Not a number.", 0.0),
        "infinite": Reward(lambda text, example: float("inf"), "Not finite.", 0.0),
        "backwards": Reward(lambda text, example: float(text != example.reference), "Prefers wrong answers.", 0.5),
    }

    def example(self, rng, difficulty):
        number = rng.randint(0, 10_000)
        return Example([Message("user", f"Say {number}")], str(number))

    def gold(self, example):
        return example.reference


class Silent(Broken):
    name = "silent"

    def gold(self, example):
        raise ZeroDivisionError


class Lost(Broken):
    name = "lost"

    def example(self, rng, difficulty):
        raise FileNotFoundError("prompts.txt")


@pytest.fixture
def broken_tasks(monkeypatch):
    found = registry.load_task_registry()
    known = registry.Registry({**found.tasks, "broken": Broken(), "lost": Lost(), "silent": Silent()}, found.broken)
    monkeypatch.setattr(registry, "load_task_registry", lambda: known)


@pytest.mark.feature(3)
def test_a_reward_function_that_fails_is_a_problem_and_one_that_prefers_wrong_answers_a_warning(broken_tasks):
    report = make_report(task={"name": "broken"})
    assert "ZeroDivisionError" in report.problems[0].message
    assert [problem.field for problem in report.problems] == ["task.rewards.raises", "task.rewards.word", "task.rewards.infinite"]
    assert "an empty answer gets 1.0, the gold answer 0.0" in one(report.warnings, "task.rewards.backwards").message


@pytest.mark.parametrize(("name", "error"), [("lost", "FileNotFoundError: prompts.txt"), ("silent", "ZeroDivisionError")])
def test_a_task_that_fails_is_a_problem(broken_tasks, name, error):
    assert error in one(make_report(task={"name": name}).problems, "task.name").message


def test_a_whole_policy_folder_is_accepted(folder):
    report = of_folder(folder)
    assert report.problems == []
    assert report.warnings == []


def without(*names: str):
    return lambda folder: [(folder / name).unlink() for name in names]


def put(name: str, content: str | bytes):
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def sharded(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without("config.json"), "has no config.json"),
        (put("config.json", "{"), "config.json cannot be read"),
        (put("config.json", "[]"), "config.json is not a JSON object"),
        (put("config.json", '{"auto_map": {"AutoModel": "x.py"}}'), "config.json has an auto_map"),
        (put("tokenizer_config.json", '{"auto_map": {}, "chat_template": "x"}'), "tokenizer_config.json has an auto_map"),
        (without("tokenizer.json"), "has no tokenizer"),
        (without("chat_template.jinja"), "has no chat template"),
        (without("model.safetensors"), "has no *.safetensors"),
        (pickled, "holds pickled weights (pytorch_model.bin), which can run code when loaded, and no *.safetensors"),
        (put("model.safetensors", b""), "model.safetensors is empty"),
        (put("model.safetensors", b"\x80\x04pickle" * 40), "model.safetensors is not a safetensors file"),
        (put("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"), "model.safetensors is not a safetensors file"),
        (put("model.safetensors", WHOLE[:-4]), f"model.safetensors is {len(WHOLE) - 4} bytes long where its header says {len(WHOLE)}"),
        (sharded, "1 of 2 weight files are missing, the first is model-2.safetensors"),
    ],
)
def test_a_folder_that_cannot_be_loaded_is_refused_with_the_reason(folder, spoil, message):
    spoil(folder)
    problem = one(of_folder(folder).problems, "policy.path")
    assert problem.value == str(folder)
    assert problem.message.startswith(message)


def test_pickled_weights_are_refused_with_the_way_to_convert_them(folder):
    pickled(folder)
    assert "save_pretrained(…), which writes safetensors" in one(of_folder(folder).problems, "policy.path").fix


def test_a_chat_template_may_be_in_the_tokenizers_configuration(folder):
    without("chat_template.jinja")(folder)
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    assert of_folder(folder).ok


def test_a_folder_that_is_not_there_or_is_a_file_is_refused(tmp_path):
    assert one(of_folder(tmp_path / "none").problems, "policy.path").message == "does not exist"
    (tmp_path / "file").touch()
    assert one(of_folder(tmp_path / "file").problems, "policy.path").message == "is a file"


def test_a_completion_beyond_the_context_is_refused_and_one_that_comes_close_warned_about(folder):
    longer = of_folder(folder, training={"trainer": "grpo", "max_completion_length": 510})
    problem = one(longer.problems, "training.max_completion_length")
    assert "context of 512" in problem.message
    longest = int(problem.fix.rpartition(" ")[2])
    assert of_folder(folder, training={"trainer": "grpo", "max_completion_length": longest}).warnings == []
    close = of_folder(folder, training={"trainer": "grpo", "max_completion_length": longest + 1})
    assert close.ok
    one(close.warnings, "training.max_completion_length")


@pytest.mark.parametrize("trainer", ["sft", "dpo"])
def test_sequences_beyond_the_context_are_refused(trainer):
    assert one(make_report(training={"trainer": trainer, "max_length": 257}).problems, "training.max_length").fix == "use at most 256"


def test_gold_answers_that_would_be_cut_off_are_warned_about():
    warning = one(make_report(task={"name": "mini_gsm", "difficulty": "hard"}).warnings, "training.max_completion_length")
    needed = int(warning.fix.rpartition(" ")[2])
    enough = make_report(task={"name": "mini_gsm", "difficulty": "hard"}, training={"trainer": "grpo", "max_completion_length": needed})
    assert enough.warnings == []


def test_a_world_needs_room_for_its_longest_episode():
    def warn(tokens: int) -> list[Any]:
        return make_report(task={"name": "rooms", "difficulty": "easy"}, training={"trainer": "grpo", "max_completion_length": tokens}).warnings

    tokens = registry.get_task("rooms").episode_tokens
    assert one(warn(40), "training.max_completion_length").suggestion == tokens
    assert warn(tokens) == []


@pytest.fixture(scope="module")
def tiny():
    from trainers.policies import tiny

    return tiny


def test_lengths_are_estimated_close_to_what_the_tiny_policy_reads(tiny):
    """Never under what its tokenizer makes of an answer, at most a third over; never over the least a prompt can take."""
    assert TINY_CONTEXT == tiny.CONTEXT
    tokenizer = tiny.build_tokenizer(tiny.build_tokenizer_corpus())
    for task in (kind() for kind in registry.BUILT_IN):
        for difficulty in task.difficulties:
            for example in task.examples("heldout", 100, 0, difficulty):
                gold = task.gold(example)
                tokens = len(tokenizer.encode(gold))
                assert tokens <= about_tokens(gold) <= tokens * 4 / 3
                messages = [{"role": message.role, "content": message.content} for message in example.prompt]
                prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
                assert len(messages[0]["content"].split()) + TEMPLATE_TOKENS <= len(prompt)


@pytest.fixture
def run(tmp_path: Path, folder: Path) -> Path:
    path = tmp_path / "earlier"
    (path / "checkpoints").mkdir(parents=True)
    (path / "run.json").write_text("{}")
    folder.rename(path / "checkpoints" / "checkpoint-50")
    return path


def test_a_checkpoint_of_a_run_is_accepted(run):
    assert make_report(policy={"kind": "run", "folder": str(run), "checkpoint": 50}).ok


def test_a_policy_a_run_has_not_saved_is_refused_with_those_it_has(run):
    problem = one(make_report(policy={"kind": "run", "folder": str(run)}).problems, "policy.checkpoint")
    assert problem.value == "final"
    assert problem.message.endswith("has no final; it has checkpoints 50")


def test_a_folder_that_is_not_a_runs_is_refused(tmp_path):
    assert "it has no run.json" in one(make_report(policy={"kind": "run", "folder": str(tmp_path)}).problems, "policy.folder").message


def test_a_policy_still_in_training_is_not_looked_for(tmp_path):
    assert make_report(policy_pending=True, policy={"kind": "run", "folder": str(tmp_path)}).ok


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """An empty hub cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "hub"


QWEN = {"kind": "hub", "name": "Qwen/Qwen2.5-0.5B-Instruct"}


def test_a_cached_hub_policy_is_looked_at(hub, folder):
    snapshot = hub / "models--Qwen--Qwen2.5-0.5B-Instruct" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    assert make_report(policy=QWEN).ok
    assert look_up_model(HubPolicy(**QWEN)).facts.found == "cache"
    (snapshot / "config.json").write_text('{"auto_map": {}}')
    assert "auto_map" in one(make_report(policy=QWEN).problems, "policy.name").message


def write_rows(folder: Path, count: int, **row: Any) -> dict[str, str]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{number}+1?", **row}) + "\n" for number in range(count)))
    return {"path": str(path)}


def test_a_datasets_rows_are_counted_shown_and_scored(tmp_path):
    report = make_report(dataset=write_rows(tmp_path, 40, reference="1"))
    assert report.ok
    assert report.batch["prompts"] == 40
    assert report.samples[0].prompt == [{"role": "user", "content": "0+1?"}]
    assert {run.kind for run in report.gold} == {"reference", "empty"}


def test_a_dpo_dataset_shows_both_answers(tmp_path):
    report = make_report(training={"trainer": "dpo"}, dataset=write_rows(tmp_path, 3, chosen="yes", rejected="no"))
    assert (report.samples[0].completion, report.samples[0].rejected) == ("yes", "no")
    assert report.batch["pairs"] == 3


@pytest.mark.parametrize(("trainer", "row"), [("sft", {"completion": "word " * 200}), ("dpo", {"chosen": "word " * 200, "rejected": "no"})])
def test_rows_longer_than_the_sequence_are_warned_about(tmp_path, trainer, row):
    dataset = write_rows(tmp_path, 5, **row)
    warning = one(make_report(training={"trainer": trainer}, dataset=dataset).warnings, "training.max_length")
    assert warning.message.startswith("5 of the first 5 sequences are longer")
    assert make_report(training={"trainer": trainer, "max_length": 256}, dataset=dataset).warnings == []


def test_a_dataset_too_small_for_one_generation_batch_is_refused(tmp_path):
    assert "8" in one(make_report(dataset=write_rows(tmp_path, 7, reference="1")).problems, "dataset.path").message


def test_a_broken_or_missing_dataset_is_refused(tmp_path):
    assert "completion is missing" in make_report(training={"trainer": "sft"}, dataset=write_rows(tmp_path, 1)).problems[0].message
    assert one(make_report(dataset={"path": str(tmp_path / "none.jsonl")}).problems, "dataset.path").message.startswith("cannot be read")


def test_random_weights_with_reinforcement_are_warned_about_and_with_sft_are_not():
    untrained = {"kind": "tiny", "cold_start": False}
    for trainer in ("grpo", "dpo"):
        assert "policy.cold_start: true" in one(make_report(policy=untrained, training={"trainer": trainer}).warnings, "policy.cold_start").fix
    assert make_report(policy=untrained, training={"trainer": "sft"}).warnings == []


def test_lora_on_the_tiny_policy_is_fine():
    assert make_report(lora={}).warnings == []


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_here_is_a_warning_only():
    report = make_report(device="cuda", precision="bf16", training={"trainer": "grpo", "use_vllm": True})
    assert report.ok
    assert {"device", "precision"} <= {warning.field for warning in report.warnings}


def test_an_output_folder_that_cannot_be_made_is_warned_about():
    assert "/dev/null" in one(make_report(output="/dev/null/run").warnings, "output").message


def test_it_takes_under_a_second_and_no_heavy_import(tmp_path):
    """The whole command in a fresh interpreter, its modules counted at the end."""
    spec = {"task": {"name": "kb"}, "training": {"trainer": "grpo"}, "output": str(tmp_path), "policy": QWEN}
    code = (
        "import sys; from trainers.__main__ import main; main(['preflight', '-']);"
        "print([name for name in ('torch', 'transformers', 'trl', 'datasets', 'django') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path)}
    started = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(spec), env=environment, capture_output=True, text=True, timeout=240, check=True
    )
    took = time.perf_counter() - started
    report, modules = result.stdout.splitlines()
    assert json.loads(report)["ok"]
    assert modules == "[]"
    assert took < 3  # 0.4 s on a quiet machine; a busy one may be several times slower
