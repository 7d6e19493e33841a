"""Which charts a run page draws: pure functions from the names of a run's metrics to panel descriptions (plain dicts, sent as JSON).

A panel lists only metrics that exist. A metric no panel knows is shown too, under "Other", grouped by the part of its name before the last "/".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.training.runs import method_panels
from trainers.contract.reward_definitions import SHADOW

COMPONENT = re.compile(r"^rewards/(?P<name>.+)/mean$")
NO_WEIGHTS: Mapping[str, float] = {}


@dataclass(frozen=True)
class ChartPanel:
    """One chart: the metrics it may show with their labels, in order of their series colour. ``points`` draws markers only. ``lead`` is the metric
    that the others add up to: drawn thick and on top of them.
    """

    id: str
    title: str
    metrics: dict[str, str]
    section: str = "Training"
    unit: str = ""
    help: str = ""
    points: bool = False
    folded: bool = False
    lead: str = ""
    pattern: re.Pattern[str] | None = field(default=None)  # further metrics, one a reward function, labelled by their group ``name``

    def present(self, names: set[str]) -> dict[str, str]:
        labels = {name: label for name, label in self.metrics.items() if name in names}
        if self.pattern:
            for name in sorted(names - set(labels)):
                if match := self.pattern.match(name):
                    labels[name] = match["name"]
        return labels


PANELS = (
    ChartPanel(
        "reward",
        "Reward",
        {"reward": "total"},
        help="Mean reward of the step's completions, with each reward function's mean. The total is the sum of the functions by their weights.",
        lead="reward",
        pattern=COMPONENT,
    ),
    ChartPanel(
        "spread",
        "Reward standard deviation",
        {"reward_std": "standard deviation", "frac_reward_zero_std": "zero-variance groups"},
        help="A group whose completions all get the same reward gives no learning signal.",
    ),
    ChartPanel("component-spread", "Standard deviation per reward function", {}, folded=True, pattern=re.compile(r"^rewards/(?P<name>.+)/std$")),
    ChartPanel(
        "reward-errors",
        "Completions that reward functions failed on",
        {},
        pattern=re.compile(r"^rewards/(?P<name>.+)/errors$"),
        folded=True,
        help="Of the step's completions, how many a function of the reward library, or Python of the team's, had no opinion on because it failed.",
    ),
    ChartPanel(
        "reward-seconds",
        "Time per reward function",
        {},
        section="Speed",
        unit="s",
        pattern=re.compile(r"^rewards/(?P<name>.+)/seconds$"),
        folded=True,
        help="Seconds that scoring a generation batch takes, summed over its completions. Shadow rewards are scored beside training.",
    ),
    ChartPanel("entropy", "Token entropy", {"entropy": "policy"}, unit="nats", help="Mean entropy of the policy's next-token distribution."),
    ChartPanel(
        "people",
        "Human reward coverage",
        {"human/share": "share of completions", "human/answered": "share of questions"},
        help="Share of the step's completions that people ranked in time, and of questions that were answered. The rest get the fallback.",
    ),
    ChartPanel(
        "heldout",
        "Held-out",
        {"heldout/reward": "reward", "heldout/accuracy": "accuracy"},
        section="Held-out",
        points=True,
        help="Evaluated on prompts that are never trained on.",
        lead="heldout/reward",
        pattern=re.compile(r"^heldout/(?!entropy$|length$|pass-|heterogeneity$|anti-concentration$)(?P<name>.+)$"),
    ),
    ChartPanel(
        "heldout-pass",
        "Held-out prompts that several answers solve",
        {},
        section="Held-out",
        points=True,
        help="Prompts that at least one of n answers solves (pass@n, unbiased), and one of as many answers as so many tokens are enough for.",
        pattern=re.compile(r"^heldout/pass-(?P<name>.+)$"),
    ),
    ChartPanel(
        "heldout-spread",
        "Spread of held-out answers",
        {"heldout/heterogeneity": "heterogeneity", "heldout/anti-concentration": "anti-concentration"},
        section="Held-out",
        points=True,
        help="Of an answer's score, the share of its token limit in which the problem is solved: variance over the right answers to a prompt, and "
        "share of answers a standard deviation above the mean. High values of both are where verification should beat cloning (arXiv 2502.12118).",
    ),
    ChartPanel("heldout-entropy", "Held-out entropy", {"heldout/entropy": "entropy"}, section="Held-out", unit="nats", points=True),
    ChartPanel("heldout-length", "Held-out length", {"heldout/length": "mean length"}, section="Held-out", unit="tokens", points=True),
    ChartPanel(
        "margins",
        "Reward margins",
        {"rewards/margins": "chosen − rejected"},
        section="Preferences",
        help="Implicit reward, chosen minus rejected.",
    ),
    ChartPanel(
        "accuracies",
        "Preference accuracy",
        {"rewards/accuracies": "accuracy"},
        section="Preferences",
        help="Share of pairs in which the chosen answer has the higher implicit reward.",
    ),
    ChartPanel("implicit", "Implicit rewards", {"rewards/chosen": "chosen", "rewards/rejected": "rejected"}, section="Preferences"),
    ChartPanel("logps", "Log-probabilities", {"logps/chosen": "chosen", "logps/rejected": "rejected"}, section="Preferences", unit="nats"),
    ChartPanel("likelihood", "Likelihood loss", {"nll_loss": "chosen"}, section="Preferences", unit="nats"),
    ChartPanel(
        "odds",
        "Odds ratio",
        {"log_odds_chosen": "log odds, chosen to rejected", "log_odds_ratio": "log sigmoid of it"},
        section="Preferences",
        folded=True,
    ),
    ChartPanel("logits", "Logits", {"logits/chosen": "chosen", "logits/rejected": "rejected"}, section="Preferences", folded=True),
    ChartPanel("loss", "Loss", {"loss": "loss"}, section="Optimisation"),
    ChartPanel(
        "token-accuracy", "Token accuracy", {"mean_token_accuracy": "accuracy"}, section="Optimisation", help="Share of tokens predicted correctly."
    ),
    ChartPanel("grad-norm", "Gradient norm", {"grad_norm": "before clipping"}, section="Optimisation"),
    ChartPanel("kl", "KL to the reference", {"kl": "KL"}, section="Optimisation", unit="nats"),
    ChartPanel("learning-rate", "Learning rate", {"learning_rate": "learning rate"}, section="Optimisation"),
    ChartPanel(
        "clip",
        "Clipped ratios",
        {"clip_ratio/region_mean": "both", "clip_ratio/low_mean": "low", "clip_ratio/high_mean": "high"},
        section="Optimisation",
        help="Share of tokens with a clipped importance ratio.",
    ),
    ChartPanel(
        "length",
        "Completion length",
        {
            "completions/mean_length": "mean",
            "completions/max_length": "longest",
            "completions/min_length": "shortest",
            "completions/mean_terminated_length": "mean terminated length",
        },
        section="Completions",
        unit="tokens",
    ),
    ChartPanel(
        "clipped",
        "Cut off",
        {"completions/clipped_ratio": "share"},
        section="Completions",
        help="Share of completions cut off at the max completion tokens.",
    ),
    ChartPanel("throughput", "Throughput", {"speed/tokens_per_second": "tokens/s"}, section="Speed", unit="tokens/s"),
    ChartPanel("step-time", "Step time", {"speed/step_seconds": "seconds", "human/wait_seconds": "waiting for people"}, section="Speed", unit="s"),
    ChartPanel("cpu", "CPU", {"system/cpu_percent": "CPU"}, section="System", unit="%", folded=True),
    ChartPanel("memory", "Memory", {"system/memory_bytes": "memory"}, section="System", unit="bytes", folded=True),
    ChartPanel("gpu", "GPU", {"system/gpu_percent": "GPU"}, section="System", unit="%", folded=True),
    ChartPanel("gpu-memory", "GPU memory", {"system/gpu_memory_bytes": "GPU memory"}, section="System", unit="bytes", folded=True),
)

# Where a panel's kind of run looks first; sections keep this order, whatever order the panels are written in.
SECTIONS = {
    "grpo": ("Training", "Held-out", "Optimisation", "Completions", "Speed", "Preferences", "Other", "System"),
    "dpo": ("Preferences", "Held-out", "Training", "Optimisation", "Completions", "Speed", "Other", "System"),
    "sft": ("Optimisation", "Held-out", "Training", "Completions", "Speed", "Preferences", "Other", "System"),
}

ON_PAIRS = ("orpo", "cpo")


def build_chart_panels(
    names: Iterable[str],
    trainer: str = "grpo",
    methods: Sequence[dict[str, Any]] = (),
    weights: Mapping[str, float] = NO_WEIGHTS,
    prompts: int | None = None,
) -> list[dict[str, Any]]:
    """The panels for a run that has these metrics, sections in reading order for its trainer, each metric in exactly one panel.

    ``methods`` are catalogue entries of the run's methods: their panels follow, from their own metrics and any others they name.
    ``weights`` of the reward functions: one that counts nothing is named so, and its line is off until somebody asks for it. ``prompts``: over
    how many held-out prompts the evaluations are means.
    """
    present = {name for name in names if not name.startswith("@")}
    of_methods, theirs = method_panels.build_method_panels(methods, present)
    left = present - theirs
    panels: list[dict[str, Any]] = []
    for panel in PANELS:
        metrics = panel.present(left)
        if metrics:
            left -= set(metrics)
            said = f"{prompts} prompts" if prompts and panel.section == "Held-out" else ""
            panels.append({**describe_panel(panel, metrics, weights), "said": said})
    panels += group_other_metrics(left)
    order = SECTIONS["dpo" if trainer in ON_PAIRS else trainer if trainer in SECTIONS else "grpo"]
    return sorted(panels, key=lambda panel: order.index(panel["section"])) + of_methods


def describe_panel(panel: ChartPanel, metrics: dict[str, str], weights: Mapping[str, float] = NO_WEIGHTS) -> dict[str, Any]:
    idle = {name for name, label in metrics.items() if name not in panel.metrics and weights.get(label) == 0}
    traces = [
        {
            "metric": name,
            "label": f"{label} (weight 0)" if name in idle and not label.endswith(SHADOW) else label,
            "color": index % 8 + 1,
            "lead": name == panel.lead and len(metrics) > 1,
            "off": name in idle and len(idle) < len(metrics),  # a chart without a line would say nothing
        }
        for index, (name, label) in enumerate(metrics.items())
    ]
    return {
        "id": panel.id,
        "title": panel.title,
        "section": panel.section,
        "unit": panel.unit,
        "help": panel.help,
        "said": "",
        "points": panel.points,
        "folded": panel.folded,
        "kind": "lines",
        "method": "",
        "traces": traces,
        "metrics": list(metrics),
    }


def group_other_metrics(names: set[str]) -> list[dict[str, Any]]:
    """Metrics that no panel knows: one panel for each prefix, at most eight lines in a panel."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(name.rpartition("/")[0], []).append(name)
    panels: list[dict[str, Any]] = []
    for prefix, members in sorted(groups.items()):
        for start in range(0, len(members), 8):
            metrics = {name: name.rpartition("/")[2] if prefix else name for name in members[start : start + 8]}
            title = (prefix or (members[start] if len(metrics) == 1 else "ungrouped")) + (f" ({start // 8 + 1})" if start else "")
            panels.append(describe_panel(ChartPanel(f"other-{len(panels)}", title, {}, section="Other", folded=True), metrics))
    return panels
