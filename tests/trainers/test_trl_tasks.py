"""What is refused of a task that TRL answers, and where: when it is loaded, before a launch, and when TRL would stumble over it."""

import functools
import json
import re
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.trainers.conftest import make_spec
from tests.trainers.tool_policy import build_tool_tokenizer
from tests.trainers.trl_tasks import DOCUMENT, DOCUMENTED, TASKS, Played, Products, Vault, Vaults, play
from trainers.adapters.tool_templates import check_tool_descriptions, find_template_fault, prepare_tool_calls
from trainers.adapters.trl_episodes import TRLEpisodes, build_trl_rows, read_content, read_score, replace_surrogates, watch_rollout_function
from trainers.attempt.shadows import Shadows
from trainers.attempt.telemetry import Scored
from trainers.checks.preflight import run_preflight_checks
from trainers.checks.trl_needs import find_wrong_data
from trainers.contract.events import Message
from trainers.contract.problems import SpecError
from trainers.contract.spec import FolderPolicy
from trainers.judges.rewards import RewardFailed
from trainers.policies import loading
from trainers.tasks import registry
from trainers.tasks.base import Example
from trainers.tasks.trl_rollouts import TRLRollouts, find_environment_class
from trainers.worlds.base import World

multiply = DOCUMENTED.multiply
PLAIN = "{%- for message in messages %}{{ message['role'] + ': ' + message['content'] + '<|im_end|>' }}{% endfor %}"


def make_vault() -> Vault:
    return Vault()


def undescribed(a: int) -> int:
    return a


def untyped(a, b: int) -> int:
    """Adds."""
    return a + b


class Closed:
    def enter(self, code: int) -> str:
        return "closed"


@pytest.mark.parametrize("name", TASKS)
def test_a_sound_task_is_taken(name):
    task = registry.make_usable_task(TASKS[name], name)
    assert task.trl is TASKS[name].trl
    assert task.rewards


def test_an_environment_that_says_its_reward_is_a_column_named_after_its_class():
    assert list(registry.make_usable_task(Vaults, "vaults").rewards) == ["correct", "Vault"]
    only = type("Only", (Vaults,), {"rewards": {}})
    task = registry.make_usable_task(only, "only")
    assert {name: reward.weight for name, reward in task.rewards.items()} == {"Vault": 1.0}
    assert task.rewards["Vault"].function("any text", task.examples("train", 1, 0, "easy")[0]) is None
    assert list(Products.rewards) == ["correct"]


@pytest.mark.parametrize("factory", [Vault, make_vault, functools.partial(make_vault), functools.partial(Vault)])
def test_the_class_of_an_environment_is_known_before_one_is_built(factory):
    before = Vault.made
    assert find_environment_class(factory) is Vault
    assert Vault.made == before


@pytest.mark.parametrize(
    ("trl", "more", "message"),
    [
        ("tools", {}, "make it a TRLRollouts"),
        (TRLRollouts(), {}, "give tools, an environment_factory or a rollout_func"),
        (TRLRollouts(tools=(multiply,), rollout_func=play), {}, "by itself"),
        (TRLRollouts(rollout_func="play"), {}, "cannot be called"),
        (TRLRollouts(tools=(multiply,)), {"max_turns": 1}, "no tool would ever be called"),
        (TRLRollouts(tools=(multiply, multiply)), {}, "two tools are called multiply"),
        (TRLRollouts(tools=(lambda a: a,)), {}, "has no name"),
        (TRLRollouts(tools=(undescribed,)), {}, "no docstring"),
        (TRLRollouts(tools=(untyped,)), {}, "no type for a"),
        (TRLRollouts(environment_factory={}), {}, "is empty"),
        (TRLRollouts(environment_factory={"vault": Vault, "number": 3}), {}, "'number' cannot be called"),
        (TRLRollouts(environment_factory=lambda: Vault()), {}, "return annotation"),
        (TRLRollouts(environment_factory=Closed), {}, "Closed has no method reset"),
        (TRLRollouts(environment_factory=Vault), {"rewards": {"Vault": Products.rewards["correct"]}}, "the name of a reward function"),
        (TRLRollouts(tools=(multiply,)), {"rewards": {}}, "at least one reward function"),
    ],
)
def test_an_unsound_task_is_not_loaded(trl, more, message):
    kind = type("Unsound", (Products,), {"trl": trl, **more})
    with pytest.raises(TypeError, match=message):
        registry.make_usable_task(kind, "unsound")


def test_a_world_is_played_by_the_lab():
    kind = type(
        "Both", (World,), {"name": "both", "trl": Products.trl, "title": "", "summary": "", "difficulties": {}, "demonstrations": "", "rewards": {}}
    )
    with pytest.raises(TypeError, match="world"):
        registry.make_usable_task(kind, "both")


def test_the_documented_entry_point_names_the_documented_class():
    text = DOCUMENT.read_text()
    [toml] = re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S)
    assert tomllib.loads(toml)["project"]["entry-points"]["policy_lab.tasks"] == {"products": "my_package.products:Products"}
    assert "`my_package/products.py`" in text


def check_before_launch(tmp_path, monkeypatch, kind, trainer="grpo", template="tool_calls", **changes):
    (tmp_path / "chat_template.jinja").write_text(template)
    task = registry.make_usable_task(kind, kind.name)
    monkeypatch.setattr(registry, "load_task_registry", lambda: registry.Registry({kind.name: task}, {}))
    policy = {"kind": "folder", "path": str(tmp_path)}
    spec = make_spec(tmp_path, trainer, **{"policy": policy, "task": {"name": kind.name, "difficulty": "easy"}, **changes})
    return run_preflight_checks(spec)


def find_fields(report):
    return {problem.field: problem.message for problem in report.problems if problem.field != "policy.path" or "template" in problem.message}


@pytest.mark.parametrize("kind", [Products, Vaults, Played])
def test_a_run_that_suits_the_task_is_let_through(tmp_path, monkeypatch, kind):
    report = check_before_launch(tmp_path, monkeypatch, kind)
    assert not find_fields(report)
    assert not [warning for warning in report.warnings if "reward" in warning.field]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"trainer": "rloo"}, "training.trainer"),
        ({"trainer": "sft"}, "training.trainer"),
        ({"training__generation": "colocate", "device": "auto"}, "training.generation"),
        ({"resources": {"processes": 2}}, "resources.processes"),
        ({"methods": [{"name": "arpo"}]}, "methods.0.name"),
        ({"template": "{{ messages }}"}, "policy.path"),
        ({"policy": {"kind": "tiny"}}, "policy.kind"),
    ],
)
def test_what_does_not_go_with_it_is_refused_with_its_field_and_a_fix(tmp_path, monkeypatch, changes, field):
    report = check_before_launch(tmp_path, monkeypatch, Products, **changes)
    assert field in find_fields(report)
    assert all(problem.fix for problem in report.problems if problem.field == field)


def test_a_rollout_function_needs_no_chat_template_with_tools(tmp_path, monkeypatch):
    assert "policy.path" not in find_fields(check_before_launch(tmp_path, monkeypatch, Played, template="{{ messages }}"))


def test_data_that_trl_cannot_hand_on_is_refused():
    task = registry.make_usable_task(TASKS["several"], "several")
    examples = [Example([Message("user", "?")], "", data) for data in ({"environment": "safe"}, {"environment": "attic", "prompts": 3})]
    messages = [problem.message for problem in find_wrong_data(task, examples)]
    assert len(messages) == 2
    assert "key prompts" in messages[0]
    assert "attic" in messages[1]
    assert not list(find_wrong_data(task, examples[:1]))


def test_a_template_without_tools_or_parser_is_refused(tmp_path):
    assert find_template_fault(build_tool_tokenizer()) == ""
    assert "does not render calls" in find_template_fault(build_tool_tokenizer(PLAIN))
    unknown = build_tool_tokenizer("{#- mine -#}" + build_tool_tokenizer().chat_template)
    assert "not one whose calls TRL can read" in find_template_fault(unknown)
    attempt: Any = SimpleNamespace(
        policy=SimpleNamespace(folder=tmp_path, tokenizer=unknown), spec=SimpleNamespace(policy=FolderPolicy(kind="folder", path=str(tmp_path)))
    )
    unknown.save_pretrained(tmp_path)
    with pytest.raises(SpecError, match="response_template") as refused:
        prepare_tool_calls(attempt)
    assert refused.value.problems[0].field == "policy.path"


def test_a_parser_of_the_tokenizer_itself_is_used_again(tmp_path):
    """Loading a policy drops it, so that rewards of other tasks see the whole text."""
    own = build_tool_tokenizer("{#- mine -#}" + build_tool_tokenizer().chat_template)
    own.response_template = {"fields": {"content": {}}}
    own.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).response_template == own.response_template
    loaded = loading.load_tokenizer(tmp_path)
    assert loaded.response_template is None
    prepare_tool_calls(SimpleNamespace(policy=SimpleNamespace(folder=tmp_path, tokenizer=loaded)))  # type: ignore[arg-type]
    assert loaded.response_template == own.response_template


def test_a_tool_whose_arguments_are_not_described_is_refused():
    def halve(a: int) -> int:
        """Halves."""
        return a // 2

    check_tool_descriptions("products", [multiply])
    with pytest.raises(SpecError, match="halve cannot be described"):
        check_tool_descriptions("products", [halve])


GOOD: dict[str, Any] = {"prompt_ids": [[1], [1]], "completion_ids": [[2, 3], [4]], "env_mask": [[1, 0], [1]], "logprobs": None}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"completion_ids": [[2, 3]]}, "1 rows of completion_ids for 2 prompts"),
        ({"completion_ids": [[2, 3], []]}, "no token for prompt 1"),
        ({"env_mask": [[1], [1]]}, "1 of env_mask for the 2 tokens of prompt 0"),
        ({"logprobs": [[-1.0, -1.0], [-1.0, -1.0]]}, "2 of logprobs for the 1 tokens of prompt 1"),
        ({"prompt_ids": None}, "must return prompt_ids"),
    ],
)
def test_what_a_rollout_function_returns_is_looked_at(change, message):
    assert watch_rollout_function(lambda prompts, trainer: GOOD)(["", ""], None) == GOOD
    with pytest.raises(ValueError, match=message):
        watch_rollout_function(lambda prompts, trainer: GOOD | change)(["", ""], None)


@pytest.mark.parametrize("value", ["much", float("nan"), float("inf"), [1]])
def test_a_reward_that_is_none_ends_the_run_with_its_name(value):
    assert read_score("Vault", True) == 1.0
    assert read_score("Vault", None) is None
    with pytest.raises(RewardFailed, match="Vault returned"):
        read_score("Vault", value)


def test_an_environment_that_fails_or_is_another_one_is_named():
    class Broken(Vault):
        def get_reward(self) -> float:
            raise OSError("gone")

    task = SimpleNamespace(rewards={"Broken": None})
    episodes = SimpleNamespace(trainer=SimpleNamespace(task=task))
    with pytest.raises(RewardFailed, match=r"Broken\.get_reward failed: OSError: gone"):
        TRLEpisodes.ask_environment(episodes, Broken())  # type: ignore[arg-type]
    with pytest.raises(RewardFailed, match="made a Vault"):
        TRLEpisodes.ask_environment(episodes, Vault())  # type: ignore[arg-type]


def test_all_rows_have_all_columns():
    examples = [Example([Message("user", "?")], "", data) for data in ({"a": 1}, {"b": [2]})]
    assert build_trl_rows(["p", "q"], examples, examples) == [{"prompt": "p", "a": 1, "b": None}, {"prompt": "q", "a": None, "b": [2]}]


@given(st.text() | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text()})) | st.none())
def test_whatever_a_tool_says_can_be_tokenized(content):
    message = {"role": "tool", "content": content}
    made = replace_surrogates(message)
    read_content(made).encode()
    assert len(read_content(made)) == len(read_content(message))
    json.dumps(made)


@pytest.mark.parametrize(("answer", "asked"), [("42", "42"), ("", ""), (None, "a call, 42")])
def test_shadows_score_what_reward_functions_score(answer, asked):
    prompt = [Message("user", "?")]
    scored = Scored(1, "train", 0, 0, prompt, "a call, 42", {}, None, "stop", [1], answer=answer)
    lines = []
    child = SimpleNamespace(ask=lambda line, seconds: lines.append(json.loads(line)) or '{"ok": true}')
    shadows = SimpleNamespace(attempt=SimpleNamespace(folder="", spec=SimpleNamespace(device="cpu")), child=child)
    column = SimpleNamespace(definition=SimpleNamespace(model_dump=dict))
    Shadows.ask(shadows, column, [(scored, Example(prompt, "42"))])  # type: ignore[arg-type]
    assert [row["completion"] for row in lines[0]["rows"]] == [asked]
