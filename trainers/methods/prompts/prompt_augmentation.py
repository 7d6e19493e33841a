"""Prompt augmentation (arXiv 2602.03190): uses a random reasoning template each time a prompt is sampled.

For every group, a template f is drawn uniformly from a set, and all members get f(x). Reward = task reward + F_f, where F_f is the share of the
template's own tags that occur exactly once in the completion (1 for a template without tags). Advantages and loss are the base's; there is no KL
penalty and no entropy bonus. It differs from the base, which shows every prompt in one form, onto which the policy collapses after a few epochs.

``draw`` = member draws a separate template for every member of a group, which the paper does not do: a member with a tag-free template then always
has the full format reward. Held-out prompts keep the plain template; the authors also evaluate with a fixed one. Extra step time: templates lengthen
prompts and their completions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import ANSWER, END_ANSWER, END_THINK, THINK

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example


@dataclass(frozen=True)
class Template:
    text: str  # with {question}
    tags: tuple[str, ...] = ()  # each wanted exactly once

    def write(self, question: str) -> str:
        return self.text.replace("{question}", question)


TEMPLATES = {
    "plain": Template("{question}"),
    "r1": Template(f"{{question}} {THINK} {END_THINK} {ANSWER} {END_ANSWER}", (THINK, END_THINK, ANSWER, END_ANSWER)),
    "steps": Template("{question} Go step by step."),
    "question": Template("Question: {question} Answer:"),
    "think": Template(f"{{question}} First {THINK} then {END_THINK}.", (THINK, END_THINK)),
    "formal": Template("Problem. {question} Solution."),
    "answer": Template(f"{{question}} End with {ANSWER} and {END_ANSWER}.", (ANSWER, END_ANSWER)),
    "careful": Template("Be careful. {question}"),
    "short": Template("{question} Be short."),
}


def format_share(text: str, tags: Sequence[str]) -> float:
    """Share of ``tags`` that occur exactly once; 1 without tags."""
    return sum(text.count(tag) == 1 for tag in tags) / len(tags) if tags else 1.0


def apply_prompt_template(prompt: Sequence[Message], template: Template) -> list[Message]:
    """The prompt, with its last message put into the template."""
    return [*prompt[:-1], Message(prompt[-1].role, template.write(prompt[-1].content))]


class Config(Strict):
    templates: int = param(len(TEMPLATES), "Number of templates to draw from; 1 = the plain prompt only.", ge=1, le=len(TEMPLATES))
    draw: Literal["group", "member"] = param("group", "Draw one template per group (the paper) or per member.", title="Draw per")
    format_weight: float = param(1.0, "Weight of the format reward, relative to the task's.", title="Format weight", ge=0, le=100)


class PromptAugmentation(Method):
    card = Card(
        name="prompt-augmentation",
        title="Prompt augmentation",
        arxiv="2602.03190",
        system="Prompt Augmentation (PA)",
        base="dapo",
        provenance="code",
        source="github wenquanlu/prompt-augmentation-GRPO: verl/utils/dataset/templates.py, rl_dataset.py, reward_score/format_reward.py",
        fit="core",
        idea="Ask the same question in many forms, so that rollouts stay diverse enough to train on a small dataset for dozens of epochs.",
        formula=(
            r"f \sim \mathrm{Uniform}(T), \quad y_i \sim \pi(\cdot | f(x))",
            r"r(y) = \mathbf{1}[\mathrm{correct}] + F_f(y), \quad F_f(y) = \frac{1}{|K_f|} \sum_{k \in K_f} \mathbf{1}[\mathrm{count}(k, y) = 1]",
        ),
        departures=(
            "There are nine templates around the lab's single answer format; the authors have thirteen in several formats.",
            "Teacher-forced starts of completions are not implemented.",
        ),
        claim=("entropy", "higher"),
    )
    Config = Config
    roles = {"rewards": "maps"}
    owns = frozenset({"prompt"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def names(self) -> list[str]:
        return list(TEMPLATES)[: self.config.templates]

    def prompts(self, example: "Example", members: int, step: int) -> list[list[Message]]:
        rng = self.run.rng("prompt-augmentation", step, *(message.content for message in example.prompt))
        shared = rng.choice(self.names)
        drawn = [shared if self.config.draw == "group" else rng.choice(self.names) for _ in range(members)]
        return [apply_prompt_template(example.prompt, TEMPLATES[name]) for name in drawn]

    def templates_of(self, batch: "RolloutBatch") -> list[str]:
        """B names: the template of each prompt; plain where another method rewrote the prompt."""
        forms = [{apply_prompt_template(example.prompt, TEMPLATES[name])[-1].content: name for name in self.names} for example in batch.examples]
        return [form.get(prompt[-1].content, "plain") for form, prompt in zip(forms, batch.prompts, strict=True)]

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        names = self.templates_of(batch)
        shares = torch.tensor([format_share(text, TEMPLATES[name].tags) for text, name in zip(batch.texts, names, strict=True)])
        self.log("format", shares.mean())
        for name in self.names:
            own = torch.tensor([found == name for found in names])
            self.log(f"share/{name}", own.float().mean())
            if own.any():
                self.log(f"accuracy/{name}", batch.correct.cpu()[own].float().mean())
        return rewards + self.config.format_weight * shares.to(rewards)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Accuracy under each template",
                tuple(Series(f"prompt-augmentation/accuracy/{name}", name) for name in TEMPLATES),
                help="Held-out prompts use the plain form.",
            ),
            Panel("Templates in use", tuple(Series(f"prompt-augmentation/share/{name}", name) for name in TEMPLATES), "stack"),
            Panel("Entropy and format", (Series("entropy", "entropy"), Series("prompt-augmentation/format", "format reward", dashed=True))),
        )
