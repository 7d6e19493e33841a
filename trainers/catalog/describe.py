"""The catalogue: every trainer, task, policy kind, recipe and parameter as plain JSON, so that a web process needs neither torch nor this package."""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import entry_points
from inspect import getdoc
from typing import Any

from trainers.contract.hyperparameters import CPO, DPO, GKD, GRPO, KTO, ORPO, RLOO, SFT, Common, OnlineDPO, Procedure, Reward, Strict
from trainers.contract.recipes import RECIPES
from trainers.contract.spec import FolderPolicy, HubPolicy, RunPolicy, RunSpec, TinyPolicy
from trainers.methods import registry
from trainers.methods.base import Base, Method, hooks_of
from trainers.rewards.base import RewardFunction
from trainers.rewards.registry import BUILT_IN as REWARDS
from trainers.tasks.base import Task
from trainers.tasks.registry import BUILT_IN, WORLDS, all_tasks
from trainers.worlds.base import World

log = logging.getLogger(__name__)

VERSION = 1  # of the catalogue's shape

TRAINERS: dict[str, tuple[str, type[Common]]] = {
    "sft": ("Supervised fine-tuning", SFT),
    "grpo": ("GRPO", GRPO),
    "rloo": ("RLOO", RLOO),
    "dpo": ("DPO", DPO),
    "kto": ("KTO", KTO),
    "orpo": ("ORPO", ORPO),
    "cpo": ("CPO and SimPO", CPO),
    "online-dpo": ("Online DPO", OnlineDPO),
    "gkd": ("On-policy distillation", GKD),
    "reward": ("Reward model", Reward),
    "procedure": ("Procedure without training", Procedure),
}
POLICIES: dict[str, tuple[str, str, type[Strict]]] = {
    "tiny": ("Built-in tiny policy", "Half a million parameters; learns the built-in tasks in a minute on two CPU cores.", TinyPolicy),
    "run": ("A run's policy", "The final policy of a finished run, or one of its checkpoints.", RunPolicy),
    "hub": ("Model hub", "An instruction-tuned model by repository id; safetensors only, repository code is never run.", HubPolicy),
    "folder": ("Folder", "A local folder with config.json, *.safetensors, a tokenizer and a chat template.", FolderPolicy),
}


def build_catalog(built_in_only: bool = False) -> dict[str, Any]:
    """The catalogue, with the tasks of installed packages unless ``built_in_only``."""
    catalogue = {
        "version": VERSION,
        "schema": RunSpec.model_json_schema(),
        "trainers": {
            name: {"title": title, "summary": " ".join((getdoc(model) or "").split()), "schema": model.model_json_schema()}
            for name, (title, model) in TRAINERS.items()
        },
        "tasks": [describe_task(kind()) for kind in (*BUILT_IN, *WORLDS)] + ([] if built_in_only else describe_plugin_tasks()),
        "policies": [
            {"kind": kind, "title": title, "summary": summary, "schema": model.model_json_schema()}
            for kind, (title, summary, model) in POLICIES.items()
        ],
        "rewards": [describe_reward_function(kind) for kind in REWARDS],
        "recipes": [asdict(recipe) for recipe in RECIPES],
        "methods": [describe_method(group, kind) for group, kind in registry.built_in()] + ([] if built_in_only else method_plugins()),
    }
    plain: dict[str, Any] = json.loads(json.dumps(catalogue, allow_nan=False))
    return plain


def describe_plugin_tasks() -> list[dict[str, Any]]:
    """The tasks of installed packages; one that cannot make an example is left out and logged."""
    found = []
    for name, task in all_tasks().items():
        if type(task) in (*BUILT_IN, *WORLDS):
            continue
        try:
            found.append(json.loads(json.dumps(describe_task(task), allow_nan=False)))
        except Exception as error:  # third-party code: anything can happen in it
            log.warning("task %s is left out of the catalogue: %s: %s", name, type(error).__name__, error)
    return found


def method_plugins() -> list[dict[str, Any]]:
    """The methods of installed packages; one that cannot be loaded is left out and logged."""
    found = []
    for point in entry_points(group=registry.ENTRY_POINTS):
        try:
            found.append(json.loads(json.dumps(describe_method("installed", point.load()), allow_nan=False)))
        except Exception as error:  # third-party code: anything can happen in it
            log.warning("method %s is left out of the catalogue: %s: %s", point.name, type(error).__name__, error)
    return found


def describe_method(group: str, kind: type[Method]) -> dict[str, Any]:
    """What pages, forms and the preflight know about a method."""
    card = asdict(kind.card)
    claim = card.pop("claim")
    return {
        **card,
        "group": group,
        "summary": " ".join((getdoc(sys.modules[kind.__module__]) or "").split()),
        "claim": {"metric": claim[0], "direction": claim[1]},
        "trainer": kind.trainer if issubclass(kind, Base) else "",
        "scale": kind.scale if issubclass(kind, Base) else "",
        "token_mean": issubclass(kind, Base) and kind.token_mean,
        "several_rows": kind.several_rows,
        "reads_pairs": kind.reads_pairs,
        "trains": sorted(kind.trains),
        "hooks": list(hooks_of(kind)),
        "owns": sorted(kind.owns),
        "roles": dict(kind.roles),
        "idle": {hook: {"parameter": name, "value": value} for hook, (name, value) in kind.idle.items()},
        "needs": sorted(kind.needs),
        "excludes": dict(kind.excludes) if isinstance(kind.excludes, Mapping) else dict.fromkeys(sorted(kind.excludes), ""),  # once a set
        "cautions": dict(kind.cautions),
        "whole_answers": kind.whole_answers,
        "requires": [asdict(need) for need in kind.requires],
        "worlds": sorted(kind.worlds),
        "parameters": kind.Config.model_json_schema(),
        "panels": [asdict(panel) for panel in kind.panels()],
    }


def describe_reward_function(kind: type[RewardFunction]) -> dict[str, Any]:
    return {"name": kind.name, "title": kind.title, "summary": kind.summary, "parameters": kind.Parameters.model_json_schema()}


def describe_task(task: Task) -> dict[str, Any]:
    example = task.examples("train", 1, 0, next(iter(task.difficulties)))[0]
    return {
        "name": task.name,
        "title": task.title,
        "summary": task.summary,
        "difficulties": task.difficulties,
        "rewards": [{"name": name, "summary": reward.summary, "weight": reward.weight} for name, reward in task.rewards.items()],
        "demonstrations": task.demonstrations,
        "turns": task.max_turns,
        "example": {"prompt": "\n".join(message.content for message in example.prompt), "gold": task.gold(example)},
        **(describe_world(task) if isinstance(task, World) else {}),
    }


def describe_world(world: World) -> dict[str, Any]:
    return {
        "episode_tokens": world.episode_tokens,
        "takes_answer": world.takes_answer,
        "tools": [{"name": tool.name, "summary": tool.summary} for tool in world.tools],
        "seats": [{"name": seat.name, "summary": seat.summary} for seat in world.seats],
        "options": world.Config.model_json_schema(),
    }


def format_catalog(catalogue: dict[str, Any]) -> str:
    return json.dumps(catalogue, indent=1, ensure_ascii=False) + "\n"
