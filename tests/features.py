"""The features of the lab by the numbers of its matrix, and which tests show each: ``make features`` writes docs/features.md from them.

A test says what it shows by ``@pytest.mark.feature(21, 22)``; tests/lab/test_docs.py holds the document to the tests.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parent
DOCUMENT = TESTS.parent / "docs/features.md"
NOTHING = "everything"  # is lacking: the feature is not there yet


@dataclass(frozen=True)
class Feature:
    """``number``: its row in the matrix, 91 to 110 for what no other tool has. ``lacking``: what of it is not there yet."""

    number: int
    title: str
    lacking: str = ""


SECTIONS: dict[str, tuple[Feature, ...]] = {
    "Launch and queue": (
        Feature(1, "Launch a GRPO-family run from a form in the browser"),
        Feature(2, "Launch a DPO-family run from a form in the browser"),
        Feature(3, "Preflight before a GPU is taken: batch arithmetic, lengths, model, memory, chat template, rewards on known answers"),
        Feature(4, "Queue with position, reason for waiting, expected start and end"),
        Feature(5, "Reorder, prioritise and move queued runs between queues"),
        Feature(6, "Stop, requeue, archive, tag and delete several runs at once"),
        Feature(7, "Workers and GPUs: use, memory, current run, heartbeat"),
        Feature(8, "Drain a worker after its current run"),
        Feature(9, "GPU-hour quota of a team"),
        Feature(10, "Clone a run, edit it and launch it with the differences shown"),
        Feature(11, "Sweeps with a leaderboard and early stopping"),
        Feature(12, "Recipes with help for each field"),
        Feature(13, "Reward functions: versioned, weighted, tested on samples"),
        Feature(14, "A run goes on while the tab is closed, refreshed or asleep"),
    ),
    "Live pages": (
        Feature(15, "Metrics are pushed, not polled"),
        Feature(16, "Rollouts appear live"),
        Feature(17, "A page that reconnects fills its gap without duplicates and says when it is behind"),
        Feature(18, "Long series are thinned without losing their spikes"),
        Feature(19, "Live log, searchable, with its colours"),
    ),
    "Charts and comparison": (
        Feature(20, "Smoothing with the raw line kept faint"),
        Feature(21, "X axis: step, time, tokens, samples"),
        Feature(22, "Log axes, ranges, outliers left out"),
        Feature(23, "One hover for all charts"),
        Feature(24, "Runs in groups: mean and interval"),
        Feature(25, "Table of runs: sort, filter, group, pin, reorder, remembered"),
        Feature(26, "Differences between the settings of several runs"),
        Feature(27, "Twenty runs in one chart without freezing"),
        Feature(28, "A click on a chart opens the rollouts of that step"),
        Feature(29, "Marks on charts: checkpoint, resume, alert, edit"),
        Feature(30, "Distribution of reward and length over time"),
        Feature(31, "Reports with live charts"),
    ),
    "Rollouts": (
        Feature(32, "Table of a step: reward, advantage, length, how it ended"),
        Feature(33, "Chat: roles, tool calls, thinking folded"),
        Feature(34, "Rendered text, raw text, tokens"),
        Feature(35, "Any earlier step by slider, number and keyboard"),
        Feature(36, "Rollouts left out of training are kept with the reason"),
        Feature(37, "Differences between two completions by words"),
        Feature(38, "Completions of 200,000 tokens stay fast"),
    ),
    "Tokens": (
        Feature(39, "Tokens coloured by log-probability"),
        Feature(40, "Tokens coloured by entropy"),
        Feature(41, "Overlays: KL to the reference, sampler mismatch, clipping, loss mask"),
        Feature(42, "Top-k alternatives on hover"),
        Feature(43, "Chart by position linked to the text"),
        Feature(44, "Special tokens and white space made visible, ids on demand"),
    ),
    "Groups and advantages": (
        Feature(45, "The whole group side by side, sorted"),
        Feature(46, "Advantage with what it was computed from"),
        Feature(47, "Reward by function, with weights"),
        Feature(48, "Groups without variance are marked and can be filtered"),
        Feature(49, "History of a prompt over steps and runs"),
    ),
    "Search": (
        Feature(50, "Full text and regular expressions over completions"),
        Feature(51, "Filters: reward, length, tag, label, how it ended"),
        Feature(52, "Saved and shared views"),
        Feature(53, "Similar rollouts and clusters"),
    ),
    "Labels": (
        Feature(54, "Pairs: A, B, tie, both bad, skip"),
        Feature(55, "Rankings with ties"),
        Feature(56, "Rubrics: questions, ratings, categories"),
        Feature(57, "A corrected answer"),
        Feature(58, "Spans and steps of an answer"),
        Feature(59, "Blind labelling with shuffled, recorded sides"),
        Feature(60, "By keyboard alone, with a list of keys"),
        Feature(61, "Drafts, undo, skip with a reason"),
        Feature(62, "Assignment, locks that expire, several labellers an item"),
        Feature(63, "Progress of each queue and labeller"),
    ),
    "Agreement and review": (
        Feature(64, "Agreement: percent, Cohen's and Fleiss' kappa, Krippendorff's alpha"),
        Feature(65, "Adjudication of conflicts"),
        Feature(66, "Review: accept, send back with a comment"),
        Feature(67, "Gold items; labellers who miss them are paused"),
        Feature(68, "Agreement of people with the reward function"),
    ),
    "Datasets": (
        Feature(69, "Export in TRL's formats as JSON lines and Parquet"),
        Feature(70, "Origin of every pair: run, step, checkpoint, labellers"),
        Feature(71, "Frozen versions: digest, split, duplicates, leaks"),
        Feature(72, "One button from a version to a DPO run from the right checkpoint"),
    ),
    "Policies": (
        Feature(73, "Checkpoints with metrics, retention, download, deletion"),
        Feature(74, "Playground with two policies side by side"),
        Feature(75, "Lineage: data, run, checkpoint, labels, run"),
    ),
    "Teams and access": (
        Feature(76, "Teams with roles, invitations, deactivation, transfer"),
        Feature(77, "Single sign-on (OpenID Connect, SAML), second factors"),
        Feature(78, "API tokens: scopes, expiry, last use, revocation"),
        Feature(79, "Audit log: searched, exported"),
    ),
    "API, alerts, reproducibility": (
        Feature(
            80,
            "REST and OpenAPI, TRL callback for runs elsewhere, Python client",
        ),
        Feature(81, "Alerts: end, crash, stall, threshold; by inbox, mail, webhook"),
        Feature(82, "Recorded with a run: command, commit, packages, seed, hardware, hash of the data"),
        Feature(83, "The launched settings never change and are shown as launched"),
    ),
    "Stop and resume": (
        Feature(84, "Resume from a checkpoint; attempts kept apart"),
        Feature(85, "Stop and save, or kill; both with a confirmed outcome"),
        Feature(86, "A run that makes no progress is reported"),
        Feature(87, "An outage of the lab never stops training"),
    ),
    "Deployment and accessibility": (
        Feature(88, "One command, no CDN, no telemetry, air-gapped"),
        Feature(89, "Dark mode, contrast, colours that differ without colour, focus order"),
        Feature(90, "Every view has an address"),
    ),
    "What other tools lack": (
        Feature(91, "From a group to its implied pairs"),
        Feature(92, "Agreement of people with the reward over time"),
        Feature(93, "Labels, version, DPO run, blind match, win rate in one loop"),
        Feature(94, "Backtest of a reward on stored rollouts"),
        Feature(95, "Shadow rewards"),
        Feature(96, "Disagreement first: what to label next"),
        Feature(97, "Biography of a prompt"),
        Feature(98, "Two runs on one prompt: the first token that differs"),
        Feature(99, "Branch at a token"),
        Feature(100, "Credit for spans"),
        Feature(101, "People as a reward function, with a deadline"),
        Feature(102, "Recall of labels"),
        Feature(103, "Gate before a promotion"),
        Feature(104, "Edit of a running run, with a mark"),
        Feature(105, "Doctor: silent failures with their evidence"),
        Feature(106, "Entropy atlas"),
        Feature(107, "Labelling that knows the policy's age"),
        Feature(108, "Discussion at a token"),
        Feature(109, "Cost per win"),
        Feature(110, "Labels replayed under another rule"),
    ),
}


def find_marked_tests() -> dict[int, list[str]]:
    """Names of the tests that show each feature, as paths below tests/ with the function: read from the source, nothing is imported."""
    tests = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for number in list_marked_numbers(function):
                    tests[number].append(f"{path.relative_to(TESTS)}::{function.name}")
    return tests


def list_marked_numbers(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[int]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.feature":
            yield from (ast.literal_eval(argument) for argument in decorator.args)


def find_contradictions(tests: dict[int, list[str]]) -> list[str]:
    """What the list of features and the marks of the tests say against each other, one line each."""
    features = {feature.number: feature for section in SECTIONS.values() for feature in section}
    wrong = [f"{number}: marked by {tests[number][0]}, but no feature has this number" for number in sorted(tests.keys() - features.keys())]
    for number, feature in features.items():
        if number not in tests and feature.lacking != NOTHING:
            wrong.append(f"{number}, {feature.title}: no test is marked with it")
        if number in tests and feature.lacking == NOTHING:
            wrong.append(f"{number}, {feature.title}: tests are marked with it, but all of it is said to be lacking")
    return wrong


def write_document(tests: dict[int, list[str]]) -> str:
    """The text of docs/features.md."""
    states = [describe_state(feature) for section in SECTIONS.values() for feature in section]
    counts = {state: sum(one.startswith(state) for one in states) for state in ("works", "partly", "not yet")}
    lines = [
        "# Features",
        "",
        f"{counts['works']} of {len(states)} work, {counts['partly']} partly, {counts['not yet']} not yet. Each is shown by the",
        "tests that are marked with its number, `@pytest.mark.feature(…)`; `make features` writes this page. 91 to 110: what we found",
        "in no other tool.",
    ]
    for section, features in SECTIONS.items():
        lines += ["", f"## {section}", "", "| # | Feature | State | Tests |", "|---|---|---|---|"]
        for feature in features:
            names = "<br>".join(f"`{name}`" for name in tests.get(feature.number, []))
            lines.append(f"| {feature.number} | {feature.title} | {describe_state(feature)} | {names} |")
    return "\n".join(lines) + "\n"


def describe_state(feature: Feature) -> str:
    if not feature.lacking:
        return "works"
    return "not yet" if feature.lacking == NOTHING else f"partly; lacking: {feature.lacking}"


if __name__ == "__main__":
    DOCUMENT.write_text(write_document(find_marked_tests()))
