"""The README of a policy on a hub: what it is and what was measured. Names that people typed stand in code spans, without line breaks."""

from __future__ import annotations

from lab.policies import evidence, measures
from lab.policies.places import short
from lab.runs.models import Checkpoint


def of(checkpoint: Checkpoint) -> str:
    run = checkpoint.run
    found = measures.at_steps([checkpoint], list(measures.SHOWN.values()))[checkpoint.pk]
    lines = ["---", "library_name: transformers", "tags:", "- policy-lab", "- trl", f"- {plain(run.trainer)}", "---", ""]
    lines += [f"# {code(run.name)}, {short(checkpoint)}", "", f"Run #{run.number}, recipe {code(run.recipe)}, task {code(run.task)},"]
    lines += [f"trained from {code(run.policy)} for {checkpoint.step} optimiser steps.", ""]
    lines += [f"- {name}: {one.value:.4g} at step {one.step}" for name, one in found.items()]
    for one in evidence.of([checkpoint])[checkpoint.pk][:3]:
        if one.rate is not None:
            lines.append(f"- preferred in {one.rate.value:.1%} of {one.votes} blind votes ({one.rate.low:.1%} to {one.rate.high:.1%})")
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    return "".join(char for char in text if char.isalnum() or char in "-_")[:40] or "rl"


def code(text: str) -> str:
    return f"`{' '.join(text.replace('`', chr(39)).split())[:100]}`"
