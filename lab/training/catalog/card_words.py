"""The words of the methods' cards in sentences: what a hook does, what a method owns and needs, where its formula comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUPS = {
    "bases": "Bases",
    "group": "Groups of completions",
    "tokens": "Tokens",
    "prompts": "Prompts and curriculum",
    "pairs": "Pairs",
    "worlds": "Multi-turn environments",
    "analysis": "Analysis",
    "installed": "From other packages",
}
TRAINERS = {
    "grpo": "GRPO",
    "rloo": "RLOO",
    "dpo": "DPO",
    "kto": "KTO",
    "orpo": "ORPO",
    "cpo": "CPO, SimPO",
    "online-dpo": "Online DPO",
    "gkd": "GKD",
    "sft": "SFT",
    "reward": "Reward model",
    "procedure": "Procedure",
}
PROVENANCES = {
    "code": "as published (code)",
    "paper": "as published (paper)",
    "departures": "published, with departures",
    "reading": "our interpretation",
}
ROLES = {
    "makes": "computes {thing} from scratch, before any other method; at most one method per recipe",
    "maps": "modifies {thing}, after the method that computes them",
    "gates": "removes entries of {thing} for good, whatever else is stacked",
    "arranges": "arranges {thing} after other methods have written them",
    "reads": "reads {thing} after all others and changes nothing",
}
THINGS = {  # what the methods of a stack hand on
    "data": "the training data",
    "rewards": "the rewards",
    "advantages": "the advantages",
    "row_advantages": "the advantages of turns and rows",
    "pair_ratios": "the log-ratios of pairs",
    "pair_loss": "the losses of pairs",
}
HOOKS = {
    "data": "builds, filters or weights what the run trains on, once before training",
    "curriculum": "weights the prompts that the next batch is drawn from",
    "prompts": "writes the prompt that each member of a group gets",
    "rollout": "decides how a completion is generated",
    "rewards": "changes the rewards before they become advantages",
    "advantages": "turns rewards into advantages, or changes those the base computed",
    "row_advantages": "gives each turn, branch or context of an episode its own advantage",
    "observe": "reads each scored batch, to keep state and to log; changes nothing",
    "token_weights": "weights each token in the policy-gradient term",
    "log_ratios": "defines the importance ratio between the policy and the sampling policy",
    "policy_loss": "replaces the policy-gradient term of the base",
    "loss": "adds a term to the loss",
    "pair_ratios": "changes the token log-ratios of chosen and rejected answers",
    "pair_margins": "requires a margin between chosen and rejected",
    "pair_loss": "wraps the loss of each pair",
    "pair_weights": "weights each pair's loss",
    "sft_weights": "weights each token of a demonstration",
    "gradients": "changes the gradients before the optimiser steps",
    "reference": "updates the reference policy during training",
}
OWNS = {
    "advantages": "how advantages are computed",
    "policy loss": "the policy-gradient term",
    "log ratio": "the importance ratio",
    "rollout": "how completions are generated",
    "curriculum": "which prompts are sampled next",
    "prompt": "how a prompt is worded",
    "reference": "the reference policy",
    "pair loss": "the loss of a pair",
    "labels": "which answer of a pair is preferred",
    "stage": "the stages of training",
}
NEEDS = {
    "logprobs": "log-probabilities of the sampling policy",
    "hidden": "the policy's hidden states",
    "reference": "a reference policy, which is one more forward pass",
    "logits": "the policy's full logits",
}
CLAIMS = {"higher": "raises", "lower": "lowers"}
PANELS = {"lines": "curves", "stack": "stacked shares", "histogram": "a histogram over the steps", "phases": "curves over coloured phases"}


def provenance_of(entry: Mapping[str, Any]) -> str:
    """``code`` or ``paper`` when it is as published there, ``departures`` when it is known from there and something is done otherwise here,
    ``reading`` when only an abstract is known."""
    if entry["provenance"] == "abstract":
        return "reading"
    return "departures" if entry["departures"] else str(entry["provenance"])


def describe_method_roles(entry: Mapping[str, Any]) -> list[str]:
    """What it does with what comes in, where the order of methods matters: a sentence a hook, which decides when it acts."""
    return [ROLES[role].format(thing=THINGS[hook]) for hook, role in entry["roles"].items()]


def pair_names_with_words(known: Mapping[str, str], names: list[str]) -> list[tuple[str, str]]:
    """(name, words) of each; a name without words stands for itself."""
    return [(name, known.get(name, name)) for name in names]


def format_requirement(need: Mapping[str, Any]) -> str:
    """What a method asks of the other settings: ``training.beta at least 0.01, or lora equals …: why``."""
    field = f"{need['field']}, or {need['or_field']}," if need["or_field"] else need["field"]
    holds = {"equals": "must be", "differs from": "must not be"}.get(need["holds"], f"must be {need['holds']}")
    if not need["hard"]:
        holds = holds.replace("must", "should")
    return f"{field} {holds} {need['value']}: {need['why']}"
