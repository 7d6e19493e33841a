"""The words of the map of systems: kinds, ideas, what a system changes, evidence, and the three filters of search agents."""

from __future__ import annotations

STATES = {"here": "In the lab", "planned": "Not here yet", "listed": "Listed only"}
KINDS = {
    "method": "Method",
    "base": "Base",
    "procedure": "Procedure",
    "analysis": "Analysis",
    "dataset-tool": "Dataset tool",
    "option": "Option",
    "listed": "Listed only",
}
IDEAS = {
    "credit": "Credit for steps and turns",
    "signal": "Rewards and advantages",
    "exploration": "Exploration and diversity",
    "stability": "Stable updates",
    "efficiency": "Length and thinking effort",
    "curriculum": "Curriculum and difficulty",
    "problems": "Making problems and data",
    "self-play": "Self-play and self-improvement",
    "preferences": "Learning from preferences",
    "judges": "Judges and reward models",
    "faithfulness": "Faithfulness and evidence",
    "imitation": "Imitation, experts and teachers",
    "search": "Search agents",
    "tools": "Tools and agents",
    "memory": "Memory and long context",
    "dialogue": "Dialogue and people",
    "trees": "Search trees and backtracking",
    "frozen": "Without training weights",
    "safety": "Safety and constraints",
    "diffusion": "Masked diffusion policies",
    "insight": "Measuring and explaining",
}
CHANGES = {
    "data": "Training data and curriculum",
    "prompts": "Prompts",
    "rollouts": "How completions are generated",
    "rewards": "Rewards",
    "advantages": "Advantages",
    "loss": "Loss and token weights",
    "optimiser": "Gradients and reference",
    "decoding": "Decoding; weights stay",
    "nothing": "Nothing; it measures",
}
CHANGED_BY = {  # hook → what a method that fills it changes; a hook that only reads changes nothing
    "data": "data",
    "curriculum": "data",
    "prompts": "prompts",
    "rollout": "rollouts",
    "rewards": "rewards",
    "advantages": "advantages",
    "row_advantages": "advantages",
    "observe": "",
    "token_weights": "loss",
    "log_ratios": "loss",
    "policy_loss": "loss",
    "loss": "loss",
    "pair_ratios": "loss",
    "pair_margins": "loss",
    "pair_loss": "loss",
    "pair_weights": "loss",
    "sft_weights": "loss",
    "gradients": "optimiser",
    "reference": "optimiser",
}
EVIDENCE = {
    "held": "Held",
    "held-negligible": "Held, negligible",
    "not-seen": "Not seen",
    "opposite-negligible": "Opposite, negligible",
    "opposite": "Opposite",
    "by-construction": "By construction only",
    "stale": "Stale",
    "unmeasured": "Not measured yet",
}
ANY_TASK = "any"
# The axes of the survey of agentic search (arXiv 2510.16724): what RL is for, how it is used, and where it is applied.
ROLES = {
    "control": "Retrieval control",
    "query": "Query optimisation",
    "reasoning": "Reasoning with retrieval",
    "agents": "Several agents",
    "tools": "Tools and knowledge",
}
HOWS = {
    "cold-start": "SFT cold start",
    "outcome": "Outcome reward",
    "process": "Process reward",
    "simulated": "Simulated environment",
    "curriculum": "Curriculum",
}
SCOPES = {"agent": "Agent", "module": "Module", "step": "Step or token", "system": "System"}
