"""CLPO: curriculum-guided learning (arXiv 2509.25004). The share of correct completions of each group defines its difficulty: hard up to 0.3, medium
up to 0.7, easy above. Hard and medium prompts are rewritten once (hard: simplified, medium: rephrased; the answer stays the same) and sampled again.
The update uses the originals and rewrites with accuracy strictly between 0 and 1 (all originals if there are none). Advantages are computed in each
group; the KL penalty of a sample is kl * s, with s = 0.5 for hard samples and 1 otherwise.

s = 0.5 applies to every kept sample labelled hard: originals with accuracy up to 0.3 as well as rewritten hard prompts, and in the fallback too (an
earlier summary had this wrong). If there are more groups than places in the batch, rewritten hard ones come first (as in the authors' code), then
originals, then rewritten medium ones. A place without a usable group keeps its original, which is excluded from the loss. With ``writer`` = rule, a
rule rewrites word problems (hard: the first change is already applied; medium: different person, objects and verbs); with policy, the policy writes
the rewrites. Other texts can be rewritten only by the policy. A rewrite that contains the answer is dropped. Rewritten word problems are scored
against the original's reference; reward functions that look at its steps (working, brevity) are not meaningful for simplified ones. It differs from
the base in the groups it trains on and in having its own KL penalty (so ``training.beta`` is 0). Step time: a second rollout of up to the whole
batch, and a forward pass of the reference.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_mean
from trainers.maths.thresholds import is_above
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts import stories

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.tasks.base import Example

Difficulty = Literal["hard", "medium", "easy"]
REQUESTS = {
    "hard": "Question: {question} Answer: {answer}. Write the question in a simpler way with the same answer.",
    "medium": "Question: {question} Answer: {answer}. Write the question in other words with the same answer.",
}
LARGEST_KL = 10.0  # of one token, as in the authors' framework
LARGEST_GAP = 20.0


def difficulty_of(accuracy: float, hard: float, medium: float) -> Difficulty:
    return "hard" if not is_above(accuracy, hard) else "medium" if not is_above(accuracy, medium) else "easy"


@dataclass(frozen=True)
class Group:
    """One group of completions. ``place``: the group of the batch it belongs to or was rewritten from."""

    place: int
    rewritten: bool
    accuracy: float
    difficulty: Difficulty  # of the original

    @property
    def teaches(self) -> bool:
        return 0 < self.accuracy < 1

    @property
    def rank(self) -> int:
        """Priority when there are more groups than places; lower comes first."""
        return 1 if not self.rewritten else 0 if self.difficulty == "hard" else 2


def assign_group_places(groups: list[Group], count: int) -> list[tuple[Group, bool]]:
    """The group in each of ``count`` places, and whether it is trained on. Originals keep their places."""
    originals = {group.place: group for group in groups if not group.rewritten}
    chosen = sorted((group for group in groups if group.teaches), key=lambda group: group.rank)[:count]
    if not chosen:
        return [(originals[place], True) for place in range(count)]
    seats = {group.place: group for group in chosen if not group.rewritten}
    waiting = iter([group for group in chosen if group.rewritten])
    for place in range(count):
        if place not in seats and (group := next(waiting, None)) is not None:
            seats[place] = group
    return [(seats[place], True) if place in seats else (originals[place], False) for place in range(count)]


def kl_terms(logprobs: Tensor, reference: Tensor) -> Tensor:
    """(B, T), (B, T) -> (B, T): low-variance estimate of KL(pi || pi_ref)."""
    gap = (reference - logprobs).clamp(-LARGEST_GAP, LARGEST_GAP)
    return (torch.expm1(gap) - gap).clamp(0.0, LARGEST_KL)  # below 0 by rounding only


class Config(Strict):
    hard: float = param(0.3, "Prompts with accuracy up to this are hard.", title="Hard: max accuracy", ge=0, le=1)
    medium: float = param(0.7, "Prompts above hard and with accuracy up to this are medium.", title="Medium: max accuracy", ge=0, le=1)
    mode: Literal["both", "hard", "medium", "none"] = param("both", "Which prompts are rewritten.", title="Rewrite")
    writer: Literal["rule", "policy"] = param("rule", "Who rewrites them: a rule for word problems, or the policy.", title="Rewritten by")
    kl: float = param(0.001, "Weight of the KL penalty.", title="KL weight", ge=0, le=100)
    hard_scale: float = param(0.5, "Multiplier on the KL weight for hard prompts.", title="KL scale, hard", ge=0, le=10)


class CLPO(Method):
    card = Card(
        name="clpo",
        title="Curriculum-guided learning",
        arxiv="2509.25004",
        system="CLPO",
        base="grpo",
        provenance="code",
        source="github csuking/CLPO: verl/trainer/ppo/ray_trainer.py, scripts/clpo_qwen3_8b.sh",
        fit="core",
        idea=(
            "Use the group's accuracy as a curriculum: simplify hard prompts, rephrase medium ones, and train on prompts that "
            "are solved only sometimes."
        ),
        formula=(
            r"B = \{q : 0 < \mathrm{acc}(q) < 1\} \cup \{q' : 0 < \mathrm{acc}(q') < 1\}",
            r"L = L_{GRPO}(B) + \beta\, s_i\, \mathrm{KL}_i, \quad s_i = 0.5 \; (\mathrm{hard}), \; 1 \; (\mathrm{else})",
        ),
        departures=(
            "A batch has a fixed number of groups, so rewrites replace the groups that are dropped.",
            "By default, a rule rewrites word problems; a setting lets the policy do it.",
            "A rewrite that contains the answer is dropped.",
            "Version 2, which trains the rewriting itself, is not implemented.",
        ),
        claim=("frac_reward_zero_std", "lower"),
        parallel=False,
    )
    Config = Config
    roles = {"advantages": "gates"}
    owns = frozenset({"rollout", "prompt"})
    needs = frozenset({"reference"})
    requires = (Requirement("training.beta", "equals", 0.0, "it has its own KL penalty, scaled for each sample"),)

    def rollout(self, session: "Session") -> "list[Completion]":
        size, count = session.group_size, len(session.examples) // session.group_size
        made = {(place, False): answers for place, answers in enumerate(split_into_groups(session.complete(), size))}
        originals = [self.measured(session, made[place, False], place, None) for place in range(count)]
        asked = self.rewrites(session, originals)
        rows = [place * size + member for place in asked for member in range(size)]
        if rows:
            answers = session.complete([asked[row // size] for row in rows], [session.examples[row] for row in rows])
            made |= {(place, True): group for place, group in zip(asked, split_into_groups(answers, size), strict=True)}
        again = [self.measured(session, made[place, True], place, originals[place].difficulty) for place in asked]
        self.report(originals, again)
        return self.seat(session, assign_group_places([*originals, *again], count), made, asked)

    def measured(self, session: "Session", answers: "list[Completion]", place: int, difficulty: Difficulty | None) -> Group:
        examples = [session.examples[place * session.group_size]] * len(answers)
        accuracy = sum(session.right(examples, answers)) / len(answers)
        return Group(place, difficulty is not None, accuracy, difficulty or difficulty_of(accuracy, self.config.hard, self.config.medium))

    def seat(self, session: "Session", seats: list[tuple[Group, bool]], made: Any, asked: dict[int, list[Message]]) -> "list[Completion]":
        """Returns the completions of the batch and writes the prompt of each into the session."""
        size, before = session.group_size, (list(session.examples), list(session.prompts))
        chosen: list[Completion] = []
        for place, (group, trained) in enumerate(seats):
            scale = (self.config.hard_scale if group.difficulty == "hard" else 1.0) if trained else 0.0
            for member, one in enumerate(made[group.place, group.rewritten]):
                row, source = place * size + member, group.place * size + member
                session.examples[row] = before[0][source]
                session.prompts[row] = asked[group.place] if group.rewritten else before[1][source]
                one.notes.update(difficulty=group.difficulty, rewritten=group.rewritten, trained=trained, scale=scale)
                one.notes["filtered"] = "" if trained else "its group teaches nothing: its answers are all right or all wrong (clpo)"
                chosen.append(one)
        return chosen

    def rewrites(self, session: "Session", originals: list[Group]) -> dict[int, list[Message]]:
        """The new prompt of each group that is rewritten."""
        wanted = [group for group in originals if group.difficulty != "easy" and self.config.mode in ("both", group.difficulty)]
        first = {group.place: session.prompts[group.place * session.group_size] for group in wanted}
        examples = {group.place: session.examples[group.place * session.group_size] for group in wanted}
        if self.config.writer == "policy" and wanted:
            requests = [build_rewrite_request(first[group.place], examples[group.place], group.difficulty) for group in wanted]
            texts = [one.text.strip() for one in session.complete(requests, [examples[group.place] for group in wanted])]
        else:
            texts = [self.by_rule(session, first[group.place][-1].content, group.difficulty) for group in wanted]
        made = {}
        for group, text in zip(wanted, texts, strict=True):
            old = first[group.place]
            if text and not has_leaked_answer(text, old[-1].content, examples[group.place].reference):
                made[group.place] = [*old[:-1], Message(old[-1].role, text)]
        return made

    def by_rule(self, session: "Session", question: str, difficulty: Difficulty) -> str:
        if (story := stories.parse_story(question)) is None:
            return ""
        told = stories.simplify_story(story) if difficulty == "hard" else stories.retell_story(story, session.rng)
        return "" if told is None else str(told)

    def report(self, originals: list[Group], again: list[Group]) -> None:
        for name in ("hard", "medium", "easy"):
            self.log(f"share/{name}", sum(group.difficulty == name for group in originals) / len(originals))
        for name in ("hard", "medium"):
            if own := [group for group in again if group.difficulty == name]:
                self.log(f"accuracy_before/{name}", sum(originals[group.place].accuracy for group in own) / len(own))
                self.log(f"accuracy_after/{name}", sum(group.accuracy for group in own) / len(own))

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        trained = torch.tensor([float(note.get("trained", True)) for note in batch.notes], device=advantages.device)
        self.log("trained", trained.mean())
        self.log("rewritten", sum(bool(note.get("rewritten")) for note in batch.notes) / len(batch.notes))
        return advantages * (trained if advantages.dim() == 1 else trained[:, None])

    def loss(self, batch: "LossBatch") -> Tensor:  # type: ignore[override]
        assert batch.reference_logprobs is not None
        notes = batch.of(batch.rollout.notes)
        scale = torch.tensor([float(note.get("scale", 1.0)) for note in notes], device=batch.logprobs.device)  # (B,)
        terms = kl_terms(batch.logprobs, batch.reference_logprobs) * batch.mask  # (B, T)
        hard = torch.tensor([note.get("difficulty") == "hard" for note in notes], device=scale.device)
        for name, chosen in (("hard", hard), ("other", ~hard)):
            if chosen.any():
                self.log(f"kl/{name}", masked_mean(terms.detach()[chosen], batch.mask[chosen]))
        return self.config.kl * scale[:, None] * terms

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel("Difficulty of the prompts", tuple(Series(f"clpo/share/{name}", name) for name in ("hard", "medium", "easy")), "stack"),
            Panel(
                "Accuracy before and after rewriting",
                tuple(
                    Series(f"clpo/accuracy_{when}/{name}", f"{name}, {when}", dashed=when == "before")
                    for name in ("hard", "medium")
                    for when in ("before", "after")
                ),
            ),
            Panel("Groups in training", (Series("clpo/trained", "trained"), Series("clpo/rewritten", "rewritten"))),
            Panel("KL to the reference", (Series("clpo/kl/hard", "hard"), Series("clpo/kl/other", "other")), unit="nats"),
        )


def split_into_groups(answers: "list[Completion]", size: int) -> "list[list[Completion]]":
    return [answers[start : start + size] for start in range(0, len(answers), size)]


def build_rewrite_request(prompt: list[Message], example: "Example", difficulty: Difficulty) -> list[Message]:
    return [Message("user", REQUESTS[difficulty].format(question=prompt[-1].content, answer=example.reference))]


def has_leaked_answer(text: str, question: str, answer: str) -> bool:
    """Whether a rewrite contains the answer although the question did not."""
    words = [part.strip(".,!?:;") for part in text.split()]
    return answer in words and answer not in [part.strip(".,!?:;") for part in question.split()]
