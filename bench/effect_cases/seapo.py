"""SeaPO on word problems: after the same number of steps, how far does the policy put gold answers above gold answers with an error in them?"""

import random
import tempfile
from pathlib import Path

import torch

from bench.effect_cases import Case, tiny
from trainers import policies, train
from trainers.attempt import Attempt
from trainers.chains import ERRORS, Error, corrupt
from trainers.methods.context import RunContext
from trainers.report import Reporter
from trainers.spec import FINAL, parse_spec
from trainers.spool import SpoolWriter
from trainers.stop import StopRequest
from trainers.tasks import registry

STEPS, PROMPTS, HELD_OUT = 40, 400, 100


def weakest_margin(seed: int, method: str) -> float:
    """Smallest over the three errors of the mean log-ratio of gold minus corrupted on held-out prompts (nats)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = tiny.spec_of(seed, method, trainer="dpo", steps=STEPS, heldout=0, training__sampled_prompts=PROMPTS)
        spec = parse_spec({**data, "output": name})
        if train.run(spec, folder) != train.FINISHED:
            raise RuntimeError("the training did not finish")
        task = registry.get("mini_gsm")
        with SpoolWriter(folder / "measure.jsonl") as writer:
            reporter, stop = Reporter(writer, 1), StopRequest(folder, None)
            start = train.resolve(spec, folder, task, reporter, stop, None)
            before, after = (RunContext(Attempt(spec, folder, task, policies.load(at, spec), reporter, stop)) for at in (start, folder / FINAL))
            return min(margin(before, after, error) for error in ERRORS)


@torch.no_grad()
def margin(before: RunContext, after: RunContext, error: Error) -> float:
    prompts, right, wrong = [], [], []
    for place, example in enumerate(before.task.examples("heldout", HELD_OUT, 0, "easy")):
        gold = before.task.gold(example)
        if (made := corrupt(gold, error, random.Random(place))) is not None:
            prompts.append(before.prompt_ids([example.prompt])[0])
            right.append(before.completion_ids(gold))
            wrong.append(before.completion_ids(made))
    ratios = [after.logprobs(prompts, side)[0].sum(1) - before.logprobs(prompts, side)[0].sum(1) for side in (right, wrong)]
    return float((ratios[0] - ratios[1]).mean())


def measure(seed: int) -> tuple[float, float]:
    return weakest_margin(seed, "seapo"), weakest_margin(seed, "")


CASE = Case(
    method="seapo",
    parent="dpo",
    claim="a mix of errors raises the margin against held-out errors of every kind, more than answers that just came out wrong",
    quantity="log-ratio of gold minus corrupted answers on held-out prompts, the smallest of three kinds of errors (nats)",
    direction="higher",
    problem="word problems, tiny policy, 40 steps on pairs of its own answers",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": PROMPTS},
)
