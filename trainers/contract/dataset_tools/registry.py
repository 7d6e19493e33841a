"""The dataset tools by name, in the order that forms list them."""

from __future__ import annotations

from difflib import get_close_matches

from trainers.contract.dataset_tools.base import DatasetTool
from trainers.contract.dataset_tools.clue_questions import ClueQuestions
from trainers.contract.dataset_tools.corrected_slips import CorrectedSlips
from trainers.contract.dataset_tools.corrupted_answers import CorruptedAnswers
from trainers.contract.dataset_tools.countdown_traces import SearchTraces
from trainers.contract.dataset_tools.failure_variants import FailureVariants
from trainers.contract.dataset_tools.judge_pairs import JudgePairs
from trainers.contract.dataset_tools.knowledge_lines import KnowledgeLines
from trainers.contract.dataset_tools.primed_episodes import PrimedEpisodes
from trainers.contract.dataset_tools.verdict_traces import VerdictTraces

BUILT_IN: tuple[type[DatasetTool], ...] = (
    CorruptedAnswers,
    CorrectedSlips,
    KnowledgeLines,
    SearchTraces,
    PrimedEpisodes,
    VerdictTraces,
    ClueQuestions,
    JudgePairs,
    FailureVariants,
)
TOOLS: dict[str, type[DatasetTool]] = {kind.card.name: kind for kind in BUILT_IN}


def suggest_tool(name: str) -> str:
    """What to do about a name that no tool has."""
    near = get_close_matches(name, TOOLS, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(TOOLS)}"
