"""The command line of the training library: ``python -m trainers COMMAND``, each in ``build_argument_parser``.

Exit codes are in docs/run-files.md.
"""

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from trainers.contract.frame_stack import call_with_frame_room
from trainers.contract.problems import Problem, SpecError
from trainers.contract.spec import FINAL, RUN_FILE, RunSpec, read_spec
from trainers.data.dataset_tool_command import add_dataset_tool_arguments, apply_tool_from_arguments
from trainers.outside.send_command import add_send_arguments, send_from_arguments

FINE, REFUSED = 0, 2

RUN_HELP = """Trains what RUN_JSON says and writes everything into the run folder: the spec's output, read from the folder of RUN_JSON.
Resumes from the newest checkpoint if the folder has one. A file named stop in the folder, SIGTERM or Ctrl-C ends it after the current step."""

EXIT_CODES = "exit codes: 0 finished, 1 failed, 2 spec refused, 3 stopped and saved, 4 the folder is in use by another trainer"


def main(arguments: list[str] | None = None) -> int:
    options = build_argument_parser().parse_args(arguments)
    try:
        if options.command == "run":
            return run_from_spec(Path(options.run_json))
        if options.command == "rank":
            return run_rank_from_orders(options.orders)
        if options.command == "preflight":
            return print_preflight_report(options.run_json, options.policy_pending, options.model)
        if options.command == "model":
            return print_model_answer(sys.stdin.buffer.read())
        if options.command == "replay":
            return print_replays(options.request)
        if options.command == "sample":
            return run_sampling_requests()
        if options.command == "embed":
            return run_embedding_requests()
        if options.command == "score":
            return run_scoring_requests(options.definition)
        if options.command == "fetch":
            return run_row_fetch()
        if options.command == "dataset-tool":
            return apply_tool_from_arguments(options)
        if options.command == "send":
            return send_from_arguments(options)
        if options.command == "methods":
            return print_methods(options.name, options.markdown, options.out)
        return print_catalog(options.out, options.built_in)
    except SpecError as error:
        return print_problems(error.problems)
    except FileNotFoundError as error:
        return print_problems([Problem("file", str(error.filename), "is not there")])


def build_argument_parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m trainers", description="Reinforcement-learning post-training of language models with TRL.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_run_commands(commands)
    add_policy_commands(commands)
    add_reward_and_data_commands(commands)
    add_catalogue_commands(commands)
    return top


def add_run_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """``run``, ``rank``, ``preflight`` and ``send``: of one run."""
    run = commands.add_parser("run", help="train a run", description=RUN_HELP, epilog=EXIT_CODES)
    run.add_argument("run_json", metavar="RUN_JSON", help="the spec of the run")
    rank = commands.add_parser(
        "rank",
        help="be one of the processes of a run; run starts them",
        description="Trains as one of several processes of a run, which `run` starts by resources.processes of the spec, with torch elastic.",
    )
    rank.add_argument("orders", metavar="ORDERS_JSON", help="what the process that was asked to train says (trainers/attempt/rank_processes.py)")
    preflight = commands.add_parser(
        "preflight",
        help="check a run before any model loads",
        description="Prints errors, warnings, batch sizes, sampled prompts and the rewards of known answers, as JSON.",
        epilog="exit codes: 0 fine, 2 the run would be refused",
    )
    preflight.add_argument("run_json", metavar="RUN_JSON", help="the spec of the run, or - for standard input")
    preflight.add_argument("--policy-pending", action="store_true", help="do not check the policy: its run has not finished yet")
    preflight.add_argument("--model", metavar="JSON", help="what `model` printed about the policy, in place of looking it up")
    send = commands.add_parser(
        "send",
        help="send a run that a script of yours has kept, or that another framework writes, to the lab",
        description="Sends what the lab does not have yet: of the run in FOLDER, where trainers.outside keeps it, or with --from of another "
        "framework's files (docs/formats.md). LAB_URL and LAB_TOKEN say where to.",
    )
    add_send_arguments(send)


def add_policy_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """``model``, ``sample`` and ``embed``: of a policy."""
    commands.add_parser(
        "model",
        help="look a policy's model up without loading it",
        description="Reads the policy of a spec from standard input and prints what its folder, the hub cache or the hub says of it, as JSON.",
        epilog="exit codes: 0 fine, 2 there is no such model, or it is not for us",
    )
    commands.add_parser(
        "sample",
        help="stream completions of a prompt, or of a stored completion's beginning, from a policy",
        description="Reads requests from standard input, a line of JSON each, and prints what is sampled as such (docs/run-files.md).",
        epilog="exit codes: 0 fine, 2 a request or a policy cannot be used",
    )
    commands.add_parser(
        "embed",
        help="compute vectors of completions with a policy or a sentence encoder",
        description="Reads requests from standard input, a line of JSON each, and prints their vectors as such (trainers/policies/embedding.py).",
        epilog="exit codes: 0 fine, 2 a request or a model cannot be used",
    )


def add_reward_and_data_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """``score``, ``replay``, ``fetch`` and ``dataset-tool``: of rollouts and rows that are there already."""
    score = commands.add_parser(
        "score",
        help="score completions with reward functions",
        description="Reads requests from standard input, a line of JSON each, and prints their scores as such (docs/run-files.md).",
        epilog="exit codes: 0 fine, 2 the definition, a request or a row cannot be used",
    )
    score.add_argument(
        "definition",
        nargs="?",
        metavar="DEFINITION_JSON",
        help="one definition for all: then each line of standard input is a row, and its score a line",
    )
    replay = commands.add_parser(
        "replay",
        help="replay a recipe on stored rollouts",
        description="Reads a spec and stored rollouts as JSON and prints advantages and token weights as a line of JSON. No model is loaded.",
        epilog="exit codes: 0 fine, 2 a method cannot be replayed, or the request is invalid",
    )
    replay.add_argument("request", metavar="REQUEST_JSON", help="the request (docs/run-files.md), or - for standard input, a request a line")
    commands.add_parser(
        "fetch",
        help="write rows of a dataset of the hub, or of a generator, to a file",
        description="Reads a request from standard input, a line of JSON, and prints its progress as such (trainers/data/fetched_rows.py).",
        epilog="exit codes: 0 the rows are there, 2 they cannot be had",
    )
    tool = commands.add_parser(
        "dataset-tool",
        help="make rows out of the rows of a file with a dataset tool",
        description="Applies a dataset tool to a file of rows and prints the rows that it makes. The file is not changed.",
        epilog="exit codes: 0 fine, 2 the tool, its settings or a row cannot be used",
    )
    add_dataset_tool_arguments(tool)


def add_catalogue_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """``methods`` and ``catalog``: of what can be trained."""
    methods = commands.add_parser("methods", help="list the methods, or show one in full", description="Lists the methods, or shows one in full.")
    methods.add_argument("name", nargs="?", default="", metavar="NAME", help="the method to show")
    methods.add_argument("--markdown", action="store_true", help="print docs/methods.md instead, without the methods of other packages")
    methods.add_argument("--out", type=Path, metavar="FILE", help="write it to FILE instead")
    catalog = commands.add_parser("catalog", help="print every task, recipe and parameter", description="Prints catalog.json.")
    catalog.add_argument("--out", type=Path, metavar="FILE", help="write it to FILE instead")
    catalog.add_argument("--built-in", action="store_true", help="leave out the tasks of other installed packages, as the committed file does")


@contextmanager
def import_undisturbed() -> Iterator[None]:
    """For imports: Python would look for garbage among what they leave again and again, a fifth of their time, and find nothing. It stays to the
    end, so that later looks for garbage leave it out.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_sampling_requests() -> int:
    with import_undisturbed():
        from trainers.policies import sampling_requests

    sampling_requests.answer_sampling_requests(sys.stdin.buffer)
    return FINE


def run_embedding_requests() -> int:
    with import_undisturbed():
        from trainers.policies import embedding

    embedding.answer_embedding_requests(sys.stdin.buffer)
    return FINE


def run_scoring_requests(definition: str | None) -> int:
    """Imports torch only where a function loads a model."""
    from trainers.rewards.scoring_requests import answer_scoring_requests, score_row_lines

    if definition is not None:
        return FINE if score_row_lines(Path(definition), sys.stdin.buffer) else REFUSED
    return FINE if answer_scoring_requests(sys.stdin.buffer) else REFUSED


def run_row_fetch() -> int:
    from trainers.data.fetched_rows import run_fetch

    def say(line: dict[str, Any]) -> None:
        sys.__stdout__.write(json.dumps(line) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]

    with redirect_stdout(sys.stderr):  # the libraries of the hub may print
        return FINE if run_fetch(sys.stdin.buffer.readline(), say) else REFUSED


def run_from_spec(path: Path) -> int:
    from trainers.checks.preflight import run_preflight_checks

    spec = read_spec(path)
    folder = (path.parent / spec.output).resolve()
    prepare_run_folder(spec, path, folder)
    # A run that has begun carries its weights on in its own checkpoints: where they came from may be gone by now.
    begun = any((folder / "checkpoints").glob("checkpoint-*"))
    report = run_preflight_checks(spec, policy_pending=begun)
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if report.problems:
        return print_problems(report.problems)
    with import_undisturbed():
        from trainers.attempt import rank_processes, shared_cold_start, train

    code = train.run_training(spec, folder) if spec.resources.processes == 1 else rank_processes.run_on_ranks(spec, folder)
    if code == FINE:
        shared_cold_start.share_as_cold_start(spec, folder / FINAL)
    return code


def run_rank_from_orders(orders: str) -> int:
    from trainers.attempt.parent_process import die_with_parent

    die_with_parent(json.loads(Path(orders).read_bytes())["parent"])
    with import_undisturbed():
        from trainers.attempt import rank_processes

    return rank_processes.run_rank(orders)


def prepare_run_folder(spec: RunSpec, path: Path, folder: Path) -> None:
    """Makes the run folder hold its run.json, when the spec was read from elsewhere. Raises SpecError when it holds another run's."""
    there = folder / RUN_FILE
    if there.exists() and there.samefile(path):
        return
    if there.exists():
        if read_spec(there) != spec:
            fix = "give the run a folder of its own, or remove the other run"
            raise SpecError([Problem("output", spec.output, f"{folder} holds another run", fix)])
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if folder != path.parent.resolve():
            there.write_bytes(path.read_bytes())
    except OSError as error:
        raise SpecError([Problem("output", spec.output, f"{folder} cannot be written: {error.strerror}", "choose another folder")]) from None


def print_model_answer(text: bytes) -> int:
    from trainers.checks.model_lookup import look_up_model, parse_policy

    answer = look_up_model(parse_policy(text))
    print(json.dumps(answer.as_json(), allow_nan=False))
    return REFUSED if answer.problems else FINE


def print_preflight_report(source: str, policy_pending: bool, model: str | None = None) -> int:
    from trainers.checks.preflight import build_refusal_report
    from trainers.checks.preflight_report import parse_spec_text, report_on_spec

    try:
        spec = parse_spec_text(sys.stdin.buffer.read()) if source == "-" else read_spec(Path(source))
        report = report_on_spec(spec, policy_pending, model)
    except SpecError as error:
        report = build_refusal_report(error)
    print(json.dumps(report.as_json(), allow_nan=False))
    print_problems(report.problems)
    return FINE if report.ok else REFUSED


def print_replays(source: str) -> int:
    """Of the request in the file ``source``, or of each line of standard input as it comes; the exit code is that of the last."""
    with import_undisturbed():
        import msgspec

    code = FINE
    for text in sys.stdin.buffer if source == "-" else [Path(source).read_bytes()]:
        with redirect_stdout(sys.stderr):  # a method of another package may print
            given = answer_replay_text(text, source)
        sys.stdout.buffer.write(msgspec.json.encode(given) + b"\n")
        sys.stdout.buffer.flush()
        code = FINE if given["ok"] else REFUSED
    return code


def answer_replay_text(text: bytes, source: str) -> dict[str, Any]:
    with import_undisturbed():
        import msgspec

        from trainers.replay.recompute import ReplayRequest, answer_replay_request

    try:
        return answer_replay_request(msgspec.json.decode(text, type=ReplayRequest))
    except msgspec.MsgspecError as error:
        problem = Problem("request", source, f"is not a replay request: {error}", "see docs/run-files.md")
        return {"ok": False, "problems": [asdict(problem)]}
    except SpecError as error:
        return {"ok": False, "problems": error.as_json()}


def print_problems(problems: list[Problem]) -> int:
    for problem in problems:
        print(" ".join(str(problem).split()), file=sys.stderr)
    return REFUSED


def print_methods(name: str, markdown: bool, out: Path | None) -> int:
    from trainers.catalog import methods_page
    from trainers.catalog.entries import built_in_entries, entry_of

    if markdown:
        written = methods_page.render_methods_markdown(list(built_in_entries().values()))
    elif not name:
        written = methods_page.format_methods_table([*built_in_entries().values(), *installed_methods()]) + "\n"
    else:
        entry = entry_of(name)
        if entry is None:
            near = get_close_matches(name, built_in_entries(), n=1)
            return print_problems([Problem("method", name, "there is no such method", f"did you mean {near[0]}?" if near else "list them: methods")])
        written = methods_page.in_full(entry) + "\n"
    if out is None:
        sys.stdout.write(written)
    else:
        out.write_text(written)
    return FINE


def installed_methods() -> list[dict[str, Any]]:
    """The methods of other packages; only when there are any is their code, and with it torch, imported."""
    if not entry_points(group="policy_lab.methods"):
        return []
    from trainers.catalog.describe import method_plugins

    return method_plugins()


def print_catalog(out: Path | None, built_in: bool) -> int:
    with import_undisturbed():
        from trainers.catalog.describe import build_catalog, format_catalog

    written = format_catalog(build_catalog(built_in))
    if out is None:
        sys.stdout.write(written)
    else:
        out.write_text(written)
    return FINE


if __name__ == "__main__":
    try:
        sys.exit(call_with_frame_room(main))
    except BrokenPipeError:  # the reader of a pipe (head) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FINE)
