"""The command line: ``policy_lab send | runs | launch | wait | stop | stream | tool``, each also as ``python -m policy_lab``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from policy_lab.lab import Lab
from policy_lab.records import Run, Update
from trainers.outside.client import LabError
from trainers.outside.send_command import add_send_arguments, send_from_arguments

FINE, FAILED, REFUSED = 0, 1, 2
EXIT_CODES = "exit codes: 0 fine, 1 the run failed or was stopped, or the lab cannot be reached, 2 the lab refuses, or the arguments are wrong"
Line = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    options = build_argument_parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    act: Callable[[argparse.Namespace], int] = options.act
    try:
        return act(options)
    except LabError as error:
        print(error, file=sys.stderr)
        return FAILED if error.temporary else REFUSED
    except BrokenPipeError:  # the reader of a pipe (head) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except KeyboardInterrupt:
        return 130


def build_argument_parser() -> argparse.ArgumentParser:
    about = "Reads, launches and follows runs of a Policy Lab, and sends runs trained elsewhere. LAB_URL and LAB_TOKEN say which lab."
    top = argparse.ArgumentParser(prog="policy_lab", description=about, epilog=EXIT_CODES)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    send = commands.add_parser("send", help="send a run trained elsewhere", description="Sends what the lab does not have yet of a run.")
    add_send_arguments(send)
    send.set_defaults(act=send_from_arguments)
    add_runs_command(commands.add_parser("runs", help="list runs", description="Lists runs, newest first."))
    add_launch_command(commands.add_parser("launch", help="launch a run", description="Launches a recipe or a spec and prints the runs."))
    add_wait_command(commands.add_parser("wait", help="wait until a run has ended", description="Waits until a run has ended."))
    stop = commands.add_parser("stop", help="stop a run", description="Stops a run after its step; it saves and can be resumed.")
    stop.add_argument("run", metavar="RUN", help="number or id of the run")
    stop.set_defaults(act=stop_run)
    add_stream_command(commands.add_parser("stream", help="follow a run", description="Prints a run's metrics and rollouts as JSON lines."))
    add_tool_command(commands.add_parser("tool", help="apply a dataset tool", description="Makes a version of a new dataset out of a version."))
    return top


def add_tool_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("version", type=int, metavar="VERSION", help="id of the version (the number in the address of its page)")
    parser.add_argument("tool", metavar="TOOL", help="the name of a dataset tool, such as skyreels-v2")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE", help="a setting of the tool; repeatable")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="what the tool draws from (0)")
    parser.add_argument("--name", default="", help="the name of the new dataset")
    parser.add_argument("--dataset", type=int, metavar="ID", help="make it the next version of this dataset, which tools made")
    parser.set_defaults(act=apply_tool)


def add_runs_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--status", default="", help="a status, open or ended")
    parser.add_argument("--tag", default="", help="a tag of the run")
    parser.add_argument("--query", default="", metavar="WORDS", help="words in the name, or a number")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="rows at most (20)")
    parser.add_argument("--json", action="store_true", help="a JSON object per line")
    parser.set_defaults(act=print_runs)


def add_launch_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", default="", metavar="RECIPE", help="the name of a recipe")
    parser.add_argument("--spec", metavar="FILE", help="instead of a recipe: a complete spec as JSON, or - for standard input")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a change, such as training.max_steps=50; repeatable")
    parser.add_argument("--name", default="", help="the name of the run")
    parser.add_argument("--project", type=int, metavar="ID", help="the id of a project")
    parser.add_argument("--no-check", action="store_true", help="skip the check before the launch")
    parser.add_argument("--wait", action="store_true", help="wait until the last run has ended")
    parser.set_defaults(act=launch_run)


def add_wait_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="number or id of the run")
    parser.add_argument("--seconds", type=float, metavar="N", help="give up after so many seconds")
    parser.set_defaults(act=wait_for_run)


def add_stream_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="number or id of the run")
    parser.add_argument("--no-rollouts", action="store_true", help="metrics only")
    parser.add_argument("--position", default="", metavar="POSITION", help="go on from the position that an earlier stream printed last")
    parser.set_defaults(act=stream_run)


def print_runs(options: argparse.Namespace) -> int:
    filters = {name: value for name, value in (("status", options.status), ("tag", options.tag), ("q", options.query)) if value}
    for _, run in zip(range(options.limit), Lab().runs(**filters), strict=False):
        print(format_json(run) if options.json else format_run(run))
    return FINE


def apply_tool(options: argparse.Namespace) -> int:
    lab = Lab()
    made = lab.apply_tool(options.version, options.tool, parse_changes(options.set), seed=options.seed, name=options.name, dataset=options.dataset)
    made = lab.wait_for_version(made)
    print(made.url)
    if made.state == "failed":
        print(made.error, file=sys.stderr)
        return FAILED
    rows, left_out = made.counts.get("items", 0), made.counts.get("left_out", {})
    print(f"{rows} rows read, {made.counts['train']} made for training, {made.counts['test']} for testing")
    for reason, count in left_out.items():
        print(f"left out: {count} {reason}")
    return FINE


def launch_run(options: argparse.Namespace) -> int:
    lab, changes = Lab(), parse_changes(options.set)
    spec = read_spec_file(options.spec) if options.spec else None
    launched = lab.launch(options.recipe, changes, spec=spec, name=options.name, project=options.project, check=not options.no_check)
    for warning in launched.warnings:
        print(f"warning: {warning.field}: {warning.message}", file=sys.stderr)
    for run in launched.runs:
        print(format_run(run), run.url, flush=True)
    return report_end(lab.wait(launched.runs[-1])) if options.wait else FINE


def parse_changes(given: list[str]) -> dict[str, Any]:
    """``training.max_steps=50`` as ``{"training": {"max_steps": 50}}``; what is no JSON is text. Raises LabError."""
    changes: dict[str, Any] = {}
    for text in given:
        path, equals, value = text.partition("=")
        *outer, last = path.split(".")
        if not equals or not all((*outer, last)):
            raise LabError(f"--set {text}: write FIELD=VALUE, such as --set training.max_steps=50")
        place = changes
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise LabError(f"--set {text}: {part} has a value already")
        try:
            place[last] = json.loads(value)
        except ValueError:
            place[last] = value
    return changes


def read_spec_file(name: str) -> dict[str, Any]:
    """Raises LabError."""
    try:
        if name == "-":
            text = sys.stdin.read()
        else:
            with open(name, encoding="utf-8") as file:
                text = file.read()
        spec = json.loads(text)
    except (OSError, ValueError) as error:
        raise LabError(f"--spec {name}: {error}") from None
    if not isinstance(spec, dict):
        raise LabError(f"--spec {name}: a spec is a JSON object")
    return spec


def wait_for_run(options: argparse.Namespace) -> int:
    return report_end(Lab().wait(options.run, options.seconds))


def report_end(run: Run) -> int:
    print(format_run(run))
    if run.status != "finished" and run.reason:
        print(run.reason, file=sys.stderr)
    return FINE if run.status == "finished" else FAILED


def stop_run(options: argparse.Namespace) -> int:
    print(format_run(Lab().stop(options.run)))
    return FINE


def stream_run(options: argparse.Namespace) -> int:
    lab = Lab()
    for update in lab.stream(options.run, not options.no_rollouts, options.position):
        for line in describe_update(update):
            print(format_json(line))
        sys.stdout.flush()
    return FINE


def describe_update(update: Update) -> list[Line]:
    run = update.run
    lines: list[Line] = [{"metric": point.name, "step": point.step, "value": point.value} for point in update.points]
    lines += [{"rollout": rollout} for rollout in update.rollouts]
    return [*lines, {"run": run.number, "status": run.status, "step": run.step, "position": update.position}]


def format_run(run: Run) -> str:
    return f"#{run.number}  {run.status:<9} {run.step}/{run.total_steps}  {run.name}"


def format_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
