"""The words of the methods' cards in sentences: what a hook does, what a method owns and needs, where its formula comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUPS = {
    "bases": "Bases",
    "group": "Groups of answers",
    "tokens": "Tokens",
    "prompts": "Prompts and curriculum",
    "pairs": "Pairs",
    "analysis": "Analysis",
    "installed": "Of other packages",
}
TRAINERS = {"grpo": "GRPO", "dpo": "DPO", "kto": "KTO", "sft": "SFT", "reward": "Reward model"}
PROVENANCES = {"code": "as published (code)", "paper": "as published (paper)", "reading": "our reading"}
HOOKS = {
    "data": "builds, filters or weights what the run trains on, once before training",
    "curriculum": "weighs which prompts the next batch is drawn from",
    "prompts": "writes the prompt that each member of a group gets",
    "rollout": "decides how a completion is generated",
    "rewards": "changes the rewards before they become advantages",
    "advantages": "turns rewards into advantages, or changes those the base computed",
    "observe": "looks at each scored batch, to remember and to log; it changes nothing",
    "token_weights": "weighs each token's part of the policy-gradient term",
    "log_ratios": "defines the importance ratio between the policy and the one that sampled",
    "policy_loss": "replaces the policy-gradient term of the base",
    "loss": "adds a term to the loss",
    "pair_ratios": "changes the token log-ratios of chosen and rejected answers",
    "pair_margins": "asks for a margin between chosen and rejected",
    "pair_loss": "wraps the loss of each pair",
    "pair_weights": "weighs each pair's loss",
    "sft_weights": "weighs each token of a demonstration",
    "gradients": "changes the gradients before the optimiser steps",
    "reference": "moves the reference policy while training goes on",
}
OWNS = {
    "advantages": "how advantages are computed",
    "policy loss": "the policy-gradient term",
    "log ratio": "the importance ratio",
    "rollout": "how completions are generated",
    "curriculum": "which prompts come next",
    "reference": "the reference policy",
    "pair loss": "the loss of a pair",
    "labels": "which answer of a pair counts as the better one",
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
    """``code`` or ``paper`` when it is as published there, ``reading`` when part of it had to be decided here."""
    return "reading" if entry["reading"] or entry["provenance"] == "abstract" else str(entry["provenance"])


def sentences(known: Mapping[str, str], names: list[str]) -> list[tuple[str, str]]:
    """(name, words) of each; a name without words stands for itself."""
    return [(name, known.get(name, name)) for name in names]


def requirement(need: Mapping[str, Any]) -> str:
    """What a method asks of the other settings: ``training.beta at least 0.01, or lora equals …: why``."""
    field = f"{need['field']}, or {need['or_field']}," if need["or_field"] else need["field"]
    holds = {"equals": "must be", "differs from": "must not be"}.get(need["holds"], f"must be {need['holds']}")
    if not need["hard"]:
        holds = holds.replace("must", "should")
    return f"{field} {holds} {need['value']}: {need['why']}"
