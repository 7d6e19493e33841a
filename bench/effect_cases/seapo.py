"""SeaPO on word problems: after the same number of steps, how far does the policy put gold answers above gold answers with an error in them?"""

import random
import tempfile
from pathlib import Path

import torch

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.spec import FINAL, parse_spec
from trainers.contract.spool import SpoolWriter
from trainers.methods.context import RunContext
from trainers.policies import loading as policies
from trainers.tasks import registry
from trainers.texts.chains import ERRORS, Error, corrupt_answer

STEPS, PROMPTS, HELD_OUT = 40, 400, 100


def trained(seed: int, method: str) -> tuple[float, tiny.Trained]:
    """Smallest over the three errors of the mean log-ratio of gold minus corrupted on held-out prompts (nats); and the run's own numbers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = tiny.spec_of(seed, method, trainer="dpo", steps=STEPS, training__sampled_prompts=PROMPTS)
        spec = parse_spec({**data, "output": name})
        if train.run_training(spec, folder) != train.FINISHED:
            raise RuntimeError("the training did not finish")
        task = registry.get_task("mini_gsm")
        with SpoolWriter(folder / "measure.jsonl") as writer:
            reporter, stop = Reporter(writer, 1), StopRequest(folder, None)
            start = train.resolve_policy_folder(spec, folder, task, reporter, stop, None)
            before, after = (
                RunContext(Attempt(spec, folder, task, policies.load_policy(at, spec), reporter, stop)) for at in (start, folder / FINAL)
            )
            return min(margin(before, after, error) for error in ERRORS), tiny.read(folder)


@torch.no_grad()
def margin(before: RunContext, after: RunContext, error: Error) -> float:
    prompts, right, wrong = [], [], []
    for place, example in enumerate(before.task.examples("heldout", HELD_OUT, 0, "easy")):
        gold = before.task.gold(example)
        if (made := corrupt_answer(gold, error, random.Random(place))) is not None:
            prompts.append(before.prompt_ids([example.prompt])[0])
            right.append(before.completion_ids(gold))
            wrong.append(before.completion_ids(made))
    ratios = [after.logprobs(prompts, side)[0].sum(1) - before.logprobs(prompts, side)[0].sum(1) for side in (right, wrong)]
    return float((ratios[0] - ratios[1]).mean())


def measure(seed: int) -> Pairs:
    (own, with_it), (parent, without) = trained(seed, "seapo"), trained(seed, "")
    return {"margin": (own, parent)} | tiny.budgeted_accuracies(with_it, without)


CASE = Case(
    method="seapo",
    parent="dpo",
    claim="a mix of errors raises the margin against held-out errors of every kind, more than answers that just came out wrong",
    quantities=(
        Quantity(
            "margin",
            "log-ratio of gold minus corrupted answers on held-out prompts, the smallest of three kinds of errors (nats)",
            "higher",
            0.1,
            "a tenth of a nat",
            by_construction="the training pairs have the same three kinds of errors",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, 40 steps on pairs of its own answers",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": PROMPTS},
)
