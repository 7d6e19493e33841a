"""What stands on top of every tab of a run: where it is, what it waits for or died of, and what a person may do now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils import timezone

from lab.training.runs import live
from lab.training.runs.curve_values import WORDS
from lab.training.runs.models import Run, Status
from lab.training.runs.process_counts import read_run_size
from lab.training.runs.resumption import find_resume_objection
from lab.training.runs.stack import build_method_chips, stack_of
from lab.training.runs.team_tasks import find_spec_task
from lab.training.runs.wait_reasons import find_waiting_reasons
from trainers.contract.hyperparameters import GROUP_TRAINERS

CHAIN_LENGTH = 20  # stages shown before this one
NEXT_STAGES = 3  # named beside the run; all of them are in the menu


@dataclass(frozen=True)
class HeaderAction:
    """Something to do with a run. ``refused`` says why it cannot be done now; empty means it can. ``minor``: in the menu even when it can."""

    name: str
    label: str
    icon: str
    url: str
    refused: str = ""
    post: bool = True
    tone: str = ""
    confirm: str = ""
    confirm_text: str = ""
    minor: bool = False
    dialog: str = ""  # of the page, in which scripts open it

    @property
    def in_menu(self) -> bool:
        return self.minor or bool(self.refused)


@dataclass(frozen=True)
class RunBanner:
    """The banner of a run that does not simply train: what is the matter, what to do, and where to look."""

    tone: str
    title: str
    text: str
    advice: str
    link: str = ""
    link_label: str = ""


def build_run_header(run: Run, tab: str) -> dict[str, Any]:
    """The context of ``runs/run_header.html``."""
    state = live.describe_run_state(run, getattr(run, "read_at", None))
    actions, chain = build_header_actions(run, state["can"]), list_run_chain(run)
    return {
        "run": run,
        "state": state,
        "elapsed": compute_elapsed_seconds(run),
        "tab": tab,
        "room": "runs",
        "chain": chain,
        "next_stages": chain[chain.index(run) + 1 :][:NEXT_STAGES] if chain else [],
        "stack": build_method_chips(stack_of(run.spec)),
        "actions": [action for action in actions if not action.in_menu],
        "more": [action for action in actions if action.in_menu],
        "notice": build_run_notice(run),
        "own_task": find_spec_task(run.team, run.spec),
        "size": None if run.outside else read_run_size(run.spec),
        "words": WORDS,
    }


def compute_elapsed_seconds(run: Run) -> float | None:
    """Seconds from the first start to the end, or to now; None before it has started."""
    return ((run.finished_at or timezone.now()) - run.started_at).total_seconds() if run.started_at else None


def list_run_chain(run: Run) -> list[Run]:
    """The stages before this run, the run, and the stages that start from it, in order."""
    before: list[Run] = []
    stage = run
    while stage.parent is not None and len(before) < CHAIN_LENGTH:
        stage = stage.parent
        before.insert(0, stage)
    after = list(run.children.filter(binned_at=None).order_by("number")[:CHAIN_LENGTH])
    return [*before, run, *after] if before or after else []


def build_header_actions(run: Run, able: Mapping[str, bool]) -> list[HeaderAction]:
    """``able``: what can be done with the run now, of ``live.describe_run_state``."""

    def url(name: str) -> str:
        return reverse(name, args=[run.pk])

    launch = reverse("launch")
    if run.outside:  # nothing here can start, clone or kill somebody else's process; it reads at its next report that it shall stop
        return [HeaderAction("stop", "Stop", "stop", url("run-stop"), "" if able["stop"] else no_stop(run)), *offer_archive(run), offer_deletion(run)]
    kill_text = "The trainer is killed immediately. Steps since the last checkpoint are lost and are trained again if you resume the run."
    feeds = HeaderAction("feeds", "Label during training", "label", url("run-feeds"), post=False, minor=True)
    ablate = HeaderAction("ablate", "Ablate", "ablations", f"{reverse('ablation-new')}?from_run={run.pk}", post=False)
    return [
        # Asks nothing: resume undoes it.
        HeaderAction("stop", "Stop and save", "stop", url("run-stop"), "" if able["stop"] else no_stop(run)),
        HeaderAction("resume", "Resume", "play", url("run-resume"), find_resume_objection(run) if able["resume"] else no_resume(run)),
        HeaderAction("edit", "Edit run", "edit", url("run-edit"), no_edit(run), post=False, dialog="edit-dialog", minor=True),
        HeaderAction("clone", "Clone and edit", "copy", f"{launch}?clone={run.pk}", post=False),
        HeaderAction("chain", "Launch next stage", "chain", f"{launch}?after={run.pk}", no_chain(run), post=False, minor=run.is_open),
        *([feeds] if run.trainer in GROUP_TRAINERS and run.is_open else []),
        *([ablate] if stack_of(run.spec).methods else []),
        HeaderAction("sweep", "Sweep from this run", "sweeps", f"{reverse('sweep-new')}?from_run={run.pk}", post=False, minor=True),
        HeaderAction("grid", "Grid from this run", "ablations", f"{reverse('grid-new')}?from_run={run.pk}", post=False, minor=True),
        *offer_archive(run),
        offer_deletion(run),
        HeaderAction(
            "kill",
            "Kill",
            "close",
            url("run-kill"),
            "" if able["kill"] else "This run is not training.",
            tone="danger",
            confirm=f"Kill run #{run.number} without saving?",
            confirm_text=kill_text,
        ),
    ]


def offer_archive(run: Run) -> list[HeaderAction]:
    """An archived run says so below its header, with the way back."""
    if run.archived_at:
        return []
    refused = f"It is {run.status}. Stop it first." if run.is_open else ""
    return [HeaderAction("archive", "Archive", "archive", reverse("run-archive", args=[run.pk]), refused, minor=True)]


def offer_deletion(run: Run) -> HeaderAction:
    """Leads to the question that says what deleting frees, or what stands in its way."""
    refused = f"It is {run.status}. Stop it first." if run.is_open else ""
    return HeaderAction("delete", "Delete", "trash", f"{reverse('bin-put')}?run={run.number}", refused, post=False, minor=True)


def no_stop(run: Run) -> str:
    return "It is already stopping." if run.status == Status.STOPPING else f"It is {run.status}; there is nothing to stop."


def no_resume(run: Run) -> str:
    if run.status == Status.FINISHED:
        return "It has finished. Launch a next stage to train its policy further."
    return "It is already queued." if run.status == Status.QUEUED else "It is still training."


def no_edit(run: Run) -> str:
    return "" if run.status in (Status.STARTING, Status.RUNNING) else f"It is {run.status}; only a run that is training can be edited."


def no_chain(run: Run) -> str:
    if run.status in (Status.STOPPED, Status.FAILED):
        return "It has no final policy. Resume it first, or start from one of its checkpoints (Config tab)."
    return ""


def build_run_notice(run: Run) -> RunBanner | None:
    logs = reverse("run-logs", args=[run.pk])
    if run.outside and run.status in (Status.LOST, Status.STOPPED, Status.FAILED):
        return build_outside_notice(run)
    if run.status in (Status.QUEUED, Status.LOST):
        return build_waiting_notice(run)
    if run.status == Status.FAILED:
        advice = "Check the end of the log. Resume continues from the last checkpoint; “Clone and edit” starts over with other values."
        return RunBanner("bad", "This run failed.", run.reason or "No reason was reported.", advice, logs, "Open the logs")
    if run.status == Status.STOPPED:
        return RunBanner(
            "info", "This run was stopped.", run.reason, "Resume continues from the last checkpoint." if run.step else "Resume queues it again."
        )
    return None


def build_outside_notice(run: Run) -> RunBanner:
    """What became of a script that trains elsewhere."""
    if run.status == Status.LOST:
        advice = "Its data is kept where it runs. If it has ended, send the rest: policy_lab send FOLDER"
        return RunBanner("warn", "No data from this run.", format_held_reason(run.reason) + ".", advice)
    title = "This run failed where it was trained." if run.status == Status.FAILED else "This run was stopped."
    return RunBanner("bad" if run.status == Status.FAILED else "info", title, run.reason, "Restart its script where it ran.")


def build_waiting_notice(run: Run) -> RunBanner:
    """Why a queued or lost run does not train yet, and what starts it."""
    reason = find_waiting_reasons([run])[run.pk]
    lost = run.status == Status.LOST
    title, text = ("This run lost its worker.", run.reason) if lost else ("Waiting in the queue.", run.reason)
    parent = reason.parent
    if parent is not None:
        held = f"It starts from the policy of #{parent.number} {parent.name}, which is {parent.status}."
        blocked = reason.kind == "blocked"
        advice = "Resume that run; this one starts when it finishes." if blocked else "It starts automatically when that run finishes."
        tone, link, label = "warn" if blocked else "info", reverse("run", args=[parent.pk]), f"Open #{parent.number}"
    elif reason.kind == "held":
        text, held, advice = "", format_held_reason(reason.why), "It starts automatically when there is room."
        tone, link, label = "warn", reverse("usage"), "Usage"
    elif reason.kind == "worker":
        held, advice = f"No worker is on the queue “{run.queue}”.", f"Start one: .venv/bin/python manage.py worker --queues {run.queue}"
        tone, link, label = "warn", reverse("workers"), "Workers"
    elif reason.kind == "size":
        held, advice = f"{reason.why[:1].upper()}{reason.why[1:]}.", f"Start one: .venv/bin/python manage.py worker --queues {run.queue} --gpus all"
        tone, link, label = "warn", reverse("workers"), "Workers"
    else:
        held, advice = f"{reason.why[:1].upper()}{reason.why[1:]}.", "It starts automatically when a worker is free."
        tone, link, label = "warn" if lost else "info", reverse("workers"), "Workers"
    return RunBanner(tone, title, f"{text} {held}".strip(), advice, link, label)


def format_held_reason(held: str) -> str:
    """A quota's reason under a title that says already that the run waits."""
    text = held.removeprefix("Waiting: ")
    return text[:1].upper() + text[1:]
