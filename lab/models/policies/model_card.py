"""The README of a policy on a hub: what it is and what was measured. Names that people typed stand in code spans, without line breaks."""

from __future__ import annotations

from lab.models.policies import blind_votes, measures
from lab.models.policies.checkpoint_paths import format_checkpoint_step
from lab.training.runs.models import Checkpoint


def render_policy_card(checkpoint: Checkpoint) -> str:
    run = checkpoint.run
    measured = measures.at_steps([checkpoint], list(measures.SHOWN.values()))[checkpoint.pk]
    lines = ["---", "library_name: transformers", "tags:", "- policy-lab", "- trl", f"- {sanitize_card_tag(run.trainer)}", "---", ""]
    lines += [
        f"# {format_code_span(run.name)}, {format_checkpoint_step(checkpoint)}",
        "",
        f"Run #{run.number}, recipe {format_code_span(run.recipe)}, task {format_code_span(run.task)},",
    ]
    lines += [f"trained from {format_code_span(run.policy)} for {checkpoint.step} optimiser steps.", ""]
    lines += [f"- {name}: {measure.value:.4g} at step {measure.step}" for name, measure in measured.items()]
    for evidence in blind_votes.collect_match_evidence([checkpoint])[checkpoint.pk][:3]:
        if rate := evidence.shown_rate:
            lines.append(f"- preferred in {rate.value:.1%} of {evidence.votes} blind votes ({rate.low:.1%} to {rate.high:.1%})")
    return "\n".join(lines) + "\n"


def sanitize_card_tag(text: str) -> str:
    return "".join(char for char in text if char.isalnum() or char in "-_")[:40] or "rl"


def format_code_span(text: str) -> str:
    return f"`{' '.join(text.replace('`', chr(39)).split())[:100]}`"
