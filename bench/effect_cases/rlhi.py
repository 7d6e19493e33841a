"""RLHI on word problems: held-out questions asked by three simulated users; are their styles kept, against DPO on right and wrong ones?"""

import tempfile
from pathlib import Path

from bench.effect_cases import Case, Pairs, Quantity, tiny
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.events import Message
from trainers.contract.spec import FINAL, parse_spec
from trainers.contract.spool import SpoolWriter
from trainers.methods.context import RunContext
from trainers.methods.pairs.rlhi import USERS
from trainers.policies import loading as policies
from trainers.tasks import registry
from trainers.tasks.base import Example

STEPS, PROMPTS, HELD_OUT = 40, 400, 100


def trained(seed: int, method: str) -> tuple[float, tiny.Trained]:
    """Mean style score of one answer to every held-out question from every user, the persona in the prompt; and the run's own numbers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = tiny.spec_of(seed, method, trainer="dpo", steps=STEPS, training__sampled_prompts=PROMPTS)
        spec = parse_spec({**data, "output": name})
        if train.run_training(spec, folder) != train.FINISHED:
            raise RuntimeError("the training did not finish")
        task = registry.get_task("mini_gsm")
        with SpoolWriter(folder / "measure.jsonl") as writer:
            policy = policies.load_policy(folder / FINAL, spec)
            run = RunContext(Attempt(spec, folder, task, policy, Reporter(writer, 1), StopRequest(folder, None)))
            return sum(kept(run, name) for name in USERS) / len(USERS), tiny.read(folder)


def kept(run: RunContext, name: str) -> float:
    questions = [example.prompt[-1].content for example in run.task.examples("heldout", HELD_OUT, 0, "easy")]
    asked = [Example([Message("system", USERS[name].persona), Message("user", question)], "") for question in questions]
    texts = [one.text for one in run.sample(asked, 1.0, name)]
    return sum(USERS[name].style(question, text) for question, text in zip(questions, texts, strict=True)) / len(questions)


def measure(seed: int) -> Pairs:
    (own, with_it), (parent, without) = trained(seed, "rlhi"), trained(seed, "")
    return {"style": (own, parent)} | tiny.budgeted_accuracies(with_it, without)


CASE = Case(
    method="rlhi",
    parent="dpo",
    claim="answers keep the style of the user who asks better than after DPO on right and wrong answers",
    quantities=(
        Quantity(
            "style",
            "mean style score of three users on held-out questions (0 to 1)",
            "higher",
            0.05,
            "a twentieth of its range",
            by_construction="the users whose style is scored rewrote or ranked the answers of the training pairs",
        ),
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
    ),
    problem="word problems, tiny policy, three simulated users, 40 steps of DPO",
    measure=measure,
    seeds=3,
    launch={"trainer": "dpo", "training__sampled_prompts": PROMPTS},
)
