"""RLHI on word problems: held-out questions asked by three simulated users; are their styles kept, against DPO on right and wrong ones?"""

import tempfile
from pathlib import Path

from bench.effect_cases import Case, tiny
from trainers import policies, train
from trainers.attempt import Attempt
from trainers.events import Message
from trainers.methods.context import RunContext
from trainers.methods.pairs.rlhi import USERS
from trainers.report import Reporter
from trainers.spec import FINAL, parse_spec
from trainers.spool import SpoolWriter
from trainers.stop import StopRequest
from trainers.tasks import registry
from trainers.tasks.base import Example

STEPS, PROMPTS, HELD_OUT = 40, 400, 100


def style(seed: int, method: str) -> float:
    """Mean style score of one answer to every held-out question from every user, the persona in the prompt."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = tiny.spec_of(seed, method, trainer="dpo", steps=STEPS, heldout=0, training__sampled_prompts=PROMPTS)
        spec = parse_spec({**data, "output": name})
        if train.run(spec, folder) != train.FINISHED:
            raise RuntimeError("the training did not finish")
        task = registry.get("mini_gsm")
        with SpoolWriter(folder / "measure.jsonl") as writer:
            policy = policies.load(folder / FINAL, spec)
            run = RunContext(Attempt(spec, folder, task, policy, Reporter(writer, 1), StopRequest(folder, None)))
            return sum(kept(run, name) for name in USERS) / len(USERS)


def kept(run: RunContext, name: str) -> float:
    questions = [example.prompt[-1].content for example in run.task.examples("heldout", HELD_OUT, 0, "easy")]
    asked = [Example([Message("system", USERS[name].persona), Message("user", question)], "") for question in questions]
    texts = [one.text for one in run.sample(asked, 1.0, name)]
    return sum(USERS[name].style(question, text) for question, text in zip(questions, texts, strict=True)) / len(questions)


def measure(seed: int) -> tuple[float, float]:
    return style(seed, "rlhi"), style(seed, "")


CASE = Case(
    method="rlhi",
    parent="dpo",
    claim="answers keep the style of the user who asks better than after DPO on right and wrong answers",
    quantity="mean style score of three users on held-out questions (0 to 1)",
    direction="higher",
    problem="word problems, tiny policy, three simulated users, 40 steps of DPO",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": PROMPTS},
)
