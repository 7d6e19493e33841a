"""VideoScore2: a judge that gives three scores, paid in bands by how near all three are (arXiv 2509.22799). A text stand-in for a judge of videos.

d_k = |said score - true score| for three whole scores from 1 to 5
r = 1 where all d_k = 0;  .7, .4, .1 where no d_k is above 1 and their sum is 1, 2, 3;  0 otherwise and where a score is missing

The published judge watches a generated video and scores its looks, how it fits the prompt, and its physics. Here it reads an answer to one of the
task's questions, drawn as good or bad as the task's demonstrations are and damaged further in half of the cases, and scores by rules that are known:
its form (tags that stand exactly once), its steps (share of the task's own that it has), and its answer (distance from the right one). Numbers of
this method never stand beside the paper's.

As in the paper there are two stages: on the SFT trainer rows are rationales with scores, of which a share has one score off by one, as annotators
disagree; on the GRPO trainer the prompts are the same and the reward is the band. The format reward of the released code is 0 throughout and is left
out. It differs from GRPO in prompts and reward: with ``reward`` at "exact" it is GRPO on whether all three scores are right. The task's own reward
is not used, and held-out accuracy, measured on the task, says nothing about this method; its metric ``exact`` does.
"""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.answers import ANSWER, END_ANSWER, END_THINK, THINK, write_answer
from trainers.tasks.base import Example
from trainers.texts.chains import ERRORS, corrupt_answer
from trainers.texts.segments import gold_steps, step_texts
from trainers.texts.spans import extract_answer

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Task

KEY = "true_scores"  # in Example.data: form, steps, answer
NAMES = ("form", "steps", "answer")
LOWEST, HIGHEST = 1, 5
BANDS = (1.0, 0.7, 0.4, 0.1)  # by the sum of the distances
TAGS = (THINK, END_THINK, ANSWER, END_ANSWER)
DAMAGED, CUT = 0.5, 0.4  # shares of the answers with an error put in, and with one to three tags taken out
SCORES = re.compile(r"([1-5])\D{0,3}([1-5])\D{0,3}([1-5])")
QUESTION = "Form, steps, answer: 1 to 5?"


@dataclass(frozen=True)
class Judged:
    """What there is to say of an answer: tags that stand once, its right steps and the steps there are at most, how far its answer is off."""

    tags: int
    right: int
    steps: int
    off: int | None  # None: it is no number, nor the right answer

    @property
    def scores(self) -> tuple[int, int, int]:
        steps = int((HIGHEST - LOWEST) * self.right / self.steps + 0.5) if self.steps else 0
        return LOWEST + self.tags, LOWEST + steps, LOWEST if self.off is None else max(LOWEST, HIGHEST - self.off)

    @property
    def rationale(self) -> str:
        return f"{self.tags} of {len(TAGS)} {self.right} of {self.steps} {'-' if self.off is None else self.off}"


def judge_answer(text: str, steps: Sequence[str], reference: str) -> Judged:
    """By the rules. ``steps``: those of the task's own solution."""
    own = step_texts(text)
    shared = sum((Counter(own) & Counter(steps)).values())
    return Judged(sum(text.count(tag) == 1 for tag in TAGS), shared, max(len(own), len(steps)), measure_distance(extract_answer(text), reference))


def measure_distance(said: str | None, reference: str) -> int | None:
    """0 for the right answer, of two whole numbers their distance, else None."""
    if said == reference:
        return 0
    numbers = [text for text in (said, reference) if text is not None and text.isascii() and text.isdigit() and len(text) <= 6]
    return abs(int(numbers[0]) - int(numbers[1])) if len(numbers) == 2 else None


def parse_scores(text: str) -> tuple[int, ...] | None:
    """The three scores of a completion's answer; None where it has others, or none."""
    found = SCORES.fullmatch((extract_answer(text) or "")[:20])
    return tuple(map(int, found.groups())) if found else None


def reward_scores(distances: Tensor, kind: str) -> Tensor:
    """(B, 3) distances, nan where a score is missing -> (B,): the band, or 1 for ``exact`` scores alone."""
    total = distances.sum(1)
    near = (distances <= 1).all(1)  # false of nan
    bands = distances.new_tensor(BANDS)
    made = torch.where(near, bands[total.nan_to_num(0.0).clamp(max=len(BANDS) - 1).long()], torch.zeros_like(total))
    return made if kind == "banded" else (total == 0).to(total.dtype)


def write_judgement(rationale: str, scores: Sequence[int]) -> str:
    return write_answer([rationale], " ".join(map(str, scores)))


def blur_scores(scores: Sequence[int], rng: random.Random) -> list[int]:
    """One of the scores off by one."""
    made, place = list(scores), rng.randrange(len(scores))
    steps = [step for step in (-1, 1) if LOWEST <= made[place] + step <= HIGHEST]
    made[place] += rng.choice(steps)
    return made


def draw_answer(task: "Task", example: Example, rng: random.Random) -> str:
    """An answer to judge. Raises LookupError for an example that the task demonstrates nothing for."""
    text = task.demonstration(example, rng)
    if rng.random() < DAMAGED:
        text = corrupt_answer(text, rng.choice(ERRORS), rng) or text
    if rng.random() < CUT:
        for tag in rng.sample(TAGS, rng.randint(1, 3)):
            text = text.replace(tag, "", 1)
    return text


def ask_judgement(example: Example, text: str, judged: Judged) -> Example:
    """The question what an answer is worth."""
    question = f"{example.prompt[-1].content}\n{text}\n{QUESTION}"
    prompt = [*example.prompt[:-1], Message("user", question)]
    return Example(prompt, " ".join(map(str, judged.scores)), {KEY: list(judged.scores)})


class Config(Strict):
    reward: Literal["banded", "exact"] = param("banded", "banded pays near scores too; exact pays three right scores alone.", title="Reward")
    noise: float = param(0.5, "SFT: share of the rows in which one score is off by one.", title="Annotators' noise", ge=0, le=1)


class VideoScore2(Method):
    card = Card(
        name="videoscore2",
        title="Judge with three scores, paid in bands",
        arxiv="2509.22799",
        system="VideoScore2",
        base="grpo",
        provenance="code",
        source="github TIGER-AI-Lab/VideoScore2: training/RL/grpo_vs2_sft.py",
        fit="needs-modality",
        idea="Text stand-in. Train a judge that thinks and gives three scores; pay it in bands, so that being nearly right earns something.",
        formula=(
            r"d_k = |\hat s_k - s_k|, \quad s_k \in \{1, \dots, 5\}",
            r"r = (1, .7, .4, .1)_{\sum_k d_k} \quad \text{if all } d_k \le 1, \quad \text{else } 0",
        ),
        departures=(
            "A text stand-in: answers to the task's questions are judged, not videos.",
            "The true scores are rules (form, steps, answer) in place of annotations by people.",
            "Rationales are a line of counts; the published ones were written by a large model.",
            "Scores are three digits in the answer; the authors' code looks for the names of the dimensions.",
        ),
        claim=("videoscore2/exact", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"grpo", "sft"})
    roles = {"data": "makes", "rewards": "makes"}
    requires = (Requirement("dataset", "equals", None, "it asks for judgements of answers to the task's own questions"),)

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        spec, rng = run.attempt.spec, run.rng(self.card.name, "answers")
        is_rl = spec.training.trainer == "grpo"
        examples = rows if is_rl else run.task.examples("train", len(rows), spec.seed, spec.task.difficulty)
        items = [item for example in examples if (item := self.draw_item(run.task, example, rng)) is not None]
        if not items:
            message = f"answers to judge are the task's demonstrations, and none of {len(examples)} examples has any"
            raise SpecError([Problem("methods", self.card.name, message, "train on a task of the lab, or give the examples its data")])
        return [asked for asked, _ in items] if is_rl else [self.write_row(asked, judged, rng) for asked, judged in items]

    def draw_item(self, task: "Task", example: Example, rng: random.Random) -> tuple[Example, Judged] | None:
        steps = gold_steps(task, example)
        if steps is None:
            return None
        try:
            text = draw_answer(task, example, rng)
        except LookupError:
            return None
        judged = judge_answer(text, steps, example.reference)
        return ask_judgement(example, text, judged), judged

    def write_row(self, asked: Example, judged: Judged, rng: random.Random) -> dict[str, Any]:
        scores = blur_scores(judged.scores, rng) if rng.random() < self.config.noise else judged.scores
        completion = [Message("assistant", write_judgement(judged.rationale, scores))]
        return {"prompt": as_rows(asked.prompt), "completion": as_rows(completion)}

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        asked = torch.tensor([KEY in example.data for example in batch.examples], device=rewards.device)
        distances = self.measure_distances(batch).to(rewards)
        made = torch.where(asked, reward_scores(distances, self.config.reward), rewards)
        self.report(distances[asked])
        return made

    def measure_distances(self, batch: "RolloutBatch") -> Tensor:
        """(B, 3), nan where a score is missing."""
        missing, rows = [float("nan")] * len(NAMES), list[list[float]]()
        for example, text in zip(batch.examples, batch.texts, strict=True):
            said, true = parse_scores(text), example.data.get(KEY)
            rows.append([float(abs(one - other)) for one, other in zip(said, true, strict=True)] if said and true else missing)
        return torch.tensor(rows)

    def report(self, distances: Tensor) -> None:
        if not len(distances):
            return
        given = ~distances.isnan().any(1)
        self.log("given", given.float().mean())
        self.log("exact", (distances.sum(1) == 0).float().mean())
        bands = reward_scores(distances, "banded")
        for band in (*BANDS, 0.0):
            self.log(f"band/{band:g}", torch.isclose(bands, bands.new_tensor(band)).float().mean())
        if given.any():
            for name, column in zip(NAMES, distances[given].T, strict=True):
                self.log(f"distance/{name}", column.mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Judgements", (Series(f"{name}/exact", "all three scores right"), Series(f"{name}/given", "three scores given", dashed=True))),
            Panel("Distance from the true score", tuple(Series(f"{name}/distance/{one}", one) for one in NAMES), unit="points"),
            Panel("Rewards", tuple(Series(f"{name}/band/{band:g}", f"{band:g}") for band in (*BANDS, 0.0)), "stack", help="Share by band."),
        )
