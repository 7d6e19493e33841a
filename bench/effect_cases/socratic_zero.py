"""Socratic-Zero on word problems: a generator whose rows are weighted by utility, against the same rows with a weight of 1.

A solver after 40 steps of GRPO answers; both generators learn the same teacher's problems from the same answers. Each then writes problems from
held-out answers, and the solver learns from the pairs of its problems.
"""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.spec import FINAL, parse_spec
from trainers.contract.spool import SpoolWriter
from trainers.methods.context import RunContext
from trainers.methods.pairs.socratic_zero import ask_for_problem
from trainers.policies import loading as policies
from trainers.tasks import registry
from trainers.tasks.base import Example
from trainers.texts.problems import read_problem

SOLVER_STEPS, GENERATOR_STEPS, STEPS, QUESTIONS, PROMPTS = 40, 120, 30, 300, 200
ATTEMPTS = 8  # of the solver at each problem of a generator
FLAT = 1000.0  # a sigma with which all problems are worth the same


def policy_folder(name: str, data: dict) -> Path:
    """Where the final policy of a run is kept; trained once."""
    folder = tiny.kept_folder(name)
    if not (folder / FINAL).is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        if train.run_training(parse_spec(data | {"output": str(folder)}), folder) != train.FINISHED:
            raise RuntimeError(f"{name} did not finish")
    return folder / FINAL


@cache
def solver(seed: int) -> Path:
    return policy_folder(f"socratic-solver-{seed}", tiny.spec_of(seed, steps=SOLVER_STEPS, heldout=0))


@cache
def generator(seed: int, sigma: float) -> Path:
    config = {"sigma": sigma, "questions": QUESTIONS, "solver": str(solver(seed))}
    data = tiny.spec_of(
        seed, "socratic-zero", config, trainer="sft", steps=GENERATOR_STEPS, heldout=0, training__learning_rate=1e-3, training__demonstrations=1000
    )
    return policy_folder(f"socratic-generator-{sigma}-{seed}", data)


def judge_problems(seed: int, sigma: float) -> dict[str, float]:
    """Of problems written from held-out questions: how far the solver's mean success is from .5, and the share that can be read."""
    with tempfile.TemporaryDirectory() as name, SpoolWriter(Path(name) / "measure.jsonl") as writer:
        spec = parse_spec(tiny.spec_of(seed) | {"output": name})
        task, solves = registry.get_task("mini_gsm"), policies.load_policy(solver(seed), spec)
        run = RunContext(Attempt(spec, Path(name), task, solves, Reporter(writer, 1), StopRequest(Path(name), None)))
        questions = task.examples("heldout", QUESTIONS, 0, "easy")
        answers = [one.text for one in run.sample(questions, 1.0, "answers")]
        asks = [Example(ask_for_problem(question.prompt, text), "") for question, text in zip(questions, answers, strict=True)]
        texts = [one.text for one in run.sample(asks, 1.0, "problems", run.frozen(str(generator(seed, sigma))))]
        problems = [problem for text in texts if (problem := read_problem(task, text)) is not None]
        asked = [problem for problem in problems for _ in range(ATTEMPTS)]
        made = [one.text for one in run.sample(asked, 1.0, "attempts")]
        right = [run.right(problem, text) for problem, text in zip(asked, made, strict=True)]
        return {"distance": abs(sum(right) / len(right) - 0.5), "readable": len(problems) / len(texts)}


def solver_trained(seed: int, sigma: float) -> tiny.Trained:
    config = {"generator": str(generator(seed, sigma))}
    return tiny.run_train(
        seed,
        "socratic-zero",
        config,
        trainer="dpo",
        steps=STEPS,
        heldout=256,
        policy={"kind": "folder", "path": str(solver(seed))},
        training__sampled_prompts=PROMPTS,
        training__learning_rate=1e-5,
    )


def measure(seed: int) -> Pairs:
    own, plain = judge_problems(seed, 0.2), judge_problems(seed, FLAT)
    accuracies = tiny.budgeted_accuracies(solver_trained(seed, 0.2), solver_trained(seed, FLAT))
    return {name: (own[name], plain[name]) for name in own} | accuracies


CASE = Case(
    method="socratic-zero",
    parent="sft",
    claim="a generator trained with the utility writes problems whose success rate is nearer to a half than one trained on the same rows without",
    quantities=(
        Quantity(
            "distance",
            "distance of the solver's mean success on the generator's problems from .5",
            "lower",
            0.03,
            "a third of what one change more costs the solver",
            by_construction="problems near .5 have the largest weights in the generator's loss",
        ),
        Quantity("readable", "share of the generator's texts that are problems", "higher", 0.05, "one text in twenty"),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy; 40 steps of GRPO make the solver, 120 of SFT each generator; 30 of DPO on the problems of each",
    measure=measure,
    seeds=3,
    launch={"trainer": "sft", "config": {"questions": 100}},
)
