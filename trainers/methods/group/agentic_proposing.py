"""Agentic proposing: a policy learns to write problems that are valid and hard, with credit for the stages of its writing (arXiv 2602.03279).

An episode of the world ``problems`` drafts a problem, checks it, perhaps checks another version, and hands in the final one. V = 1 if that is valid
and has the skills asked for; rho is the success rate of a prober at it, the policy that the run started from, in ``attempts`` answers.
    R_traj = V (1 + lam 1[rho > 0] (1 - rho)),  A_traj: its z-score over the group
    r_m in {0, 1} for the stage m, 0 where V = 0,  A_m: its z-score over those members of the group that reach stage m
    A of a token in stage m = A_traj + omega A_m.
r of the draft: it is a problem as asked for; of a check: the tool found its problem good; of the final stage: what is handed in was checked and found
good. Prompts are drawn with weights 1 / (proficiency + 0.1), where the proficiency of a skill is the share of valid problems among those that were to
use it. This is our reading of an abstract: how the terms are combined and both weights are our choices. It differs from GRPO in rewards, advantages
and the order of prompts; without lam and omega the advantages are z-scores of V. Standard deviations are those of the population.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.base import Example
from trainers.texts.spans import Span, answer_span, extract_answer, thought_span
from trainers.worlds.problems import Problems

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History

STAGES = ("draft", "check", "refine", "final")
CHECK, END_CHECK = "<check>", "</check>"
ROOM = 0.1  # added to a proficiency
KNOWN = 20_000  # problems whose success rate is remembered


def reward_proposals(valid: Tensor, success: Tensor, lam: float) -> Tensor:
    """(B,) bool, (B,) in [0, 1] -> (B,): R_traj."""
    return valid.to(success.dtype) * (1 + lam * (success > 0) * (1 - success))


def standardise_members(values: Tensor, members: Tensor, group_size: int) -> Tensor:
    """(B,), (B,) bool -> (B,): the z-score of each member over its group's members; 0 for others, single members and equal values."""
    own = members.to(values.dtype).view(-1, group_size)
    groups = values.view(-1, group_size)
    count = own.sum(1, keepdim=True).clamp(min=1)
    mean = (groups * own).sum(1, keepdim=True) / count
    centred = (groups - mean) * own
    spread = (centred.square().sum(1, keepdim=True) / count).sqrt()
    low, high = (groups.masked_fill(own == 0, edge) for edge in (torch.inf, -torch.inf))
    flat = low.amin(1, keepdim=True) >= high.amax(1, keepdim=True)
    return torch.where(flat, torch.zeros_like(centred), centred / spread.clamp(min=1e-12)).flatten()


def split_stages(text: str) -> dict[str, Span]:
    """Stage -> characters [start, end) of it, for the stages that a text reaches."""
    found: dict[str, Span] = {}
    checks, at = list[Span](), text.find(CHECK)
    while at >= 0 and (end := text.find(END_CHECK, at)) >= 0:
        checks.append((at, end + len(END_CHECK)))
        at = text.find(CHECK, end)
    if (thought := thought_span(text)) is not None and (not checks or thought[0] < checks[0][0]):
        found["draft"] = thought
    if checks:
        found["check"] = checks[0]
    if len(checks) > 1:
        found["refine"] = (checks[1][0], checks[-1][1])
    if (final := answer_span(text)) is not None:
        found["final"] = final
    return found


def list_checked(text: str) -> list[str]:
    """The problems that a text has had checked, in order."""
    return [part.partition(END_CHECK)[0].strip() for part in text.split(CHECK)[1:] if END_CHECK in part]


def judge_stages(world: Problems, example: Example, text: str) -> dict[str, float]:
    """Stage -> r_m of the stages that a text reaches, whether the final problem is valid or not."""
    spans, checked = split_stages(text), list_checked(text)
    good = [world.is_wanted(example, problem) for problem in checked]
    made: dict[str, float] = {}
    if "draft" in spans:
        made["draft"] = float(world.is_wanted(example, text[slice(*spans["draft"])].strip()))
    if "check" in spans:
        made["check"] = float(good[0])
    if "refine" in spans:
        made["refine"] = float(good[-1])
    if "final" in spans:
        final = extract_answer(text)
        made["final"] = float(any(fine and problem == final for problem, fine in zip(checked, good, strict=True)))
    return made


class Config(Strict):
    lam: float = param(1.0, "Weight of a valid problem's difficulty (our value).", title="Difficulty weight (lambda)", ge=0, le=10)
    omega: float = param(0.5, "Weight of the stages' advantages (our value).", title="Stage weight (omega)", ge=0, le=10)
    attempts: int = param(16, "Answers of the prober to each problem.", title="Prober's answers", ge=1, le=256)
    temperature: float = param(1.0, "Sampling temperature of the prober.", title="Prober's temperature", gt=0, le=10, advanced=True)


class AgenticProposing(Method):
    card = Card(
        name="agentic-proposing",
        title="Proposing problems in stages",
        arxiv="2602.03279",
        system="Agentic Proposing (MGPO)",
        base="grpo",
        provenance="abstract",
        source="abstract and a survey entry; the official repository was not found",
        fit="needs-environment",
        idea="Write problems that are valid and hard but solvable, and learn from each stage of the writing as well as from the result.",
        formula=(
            r"R = V(q)\left(1 + \lambda\, 1[\rho(q) > 0]\,(1 - \rho(q))\right)",
            r"A_{t \in m} = z(R) + \omega\, z_m(r_m)",
            r"p(c) \propto 1 / (\mathrm{proficiency}(c) + \epsilon)",
        ),
        reading="how validity, difficulty and stage rewards are combined, their weights, and what a stage earns",
        departures=(
            "A rule of the world says whether a problem is valid; the authors use several verifiers and a code check.",
            "The skills are three operations of the world, not a library that a large model extracts.",
            "The problems are not used to train a solver.",
        ),
        claim=("agentic-proposing/hard", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "makes", "advantages": "makes"}
    owns = frozenset({"advantages", "curriculum"})
    worlds = frozenset({"problems"})
    requires = (Requirement("task.options.ask", "equals", "write", "the policy proposes problems"),)

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.success: dict[str, float] = {}  # rho of the problems seen; the prober never changes
        self.skills: dict[str, list[int]] = {}  # skill -> problems that were to use it, valid ones among them

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        if not (isinstance(run.task, Problems) and run.task.config.ask == "write"):
            message = "its prompts are not all requests to write a problem"
            raise SpecError([Problem("task.name", run.task.name, message, "choose the world problems with the option ask: write")])

    def curriculum(self, history: "History") -> Tensor:
        known = {name: valid / asked for name, (asked, valid) in self.skills.items()}
        usual = sum(known.values()) / len(known) if known else 0.0
        for name, share in known.items():
            self.log(f"proficiency/{name}", share)
        return torch.tensor([weigh_skills(example.data["skills"], known, usual) for example in self.run.examples])

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        problems = [extract_answer(text) or "" for text in batch.texts]
        self.probe({problem for problem, valid in zip(problems, batch.correct.tolist(), strict=True) if valid}, batch.step)
        success = rewards.new_tensor([self.success.get(problem, 0.0) for problem in problems])
        valid = batch.correct
        for example, fine in zip(batch.examples, valid.tolist(), strict=True):
            for name in example.data["skills"]:
                asked, before = self.skills.get(name, [0, 0])
                self.skills[name] = [asked + 1, before + int(fine)]
        self.log("valid", valid.float().mean())
        self.log("hard", (valid & (success > 0) & (success <= 0.5)).float().mean())
        self.log("unsolved", (valid & (success == 0)).float().mean())
        if valid.any():
            self.log("success", success[valid].mean())
            self.log_histogram("success_of_valid", success[valid], 0.0, 1.0)
        return reward_proposals(valid, success, self.config.lam)

    def probe(self, problems: set[str], step: int) -> None:
        """Has the prober answer the problems that it has not seen, and remembers its success rates."""
        fresh = sorted(problems - self.success.keys())
        examples = [example for problem in fresh if (example := self.run.task.read(problem)) is not None]  # type: ignore[attr-defined]
        asked = [example for example in examples for _ in range(self.config.attempts)]
        if not asked:
            return
        made = self.run.sample(asked, self.config.temperature, f"agentic-proposing/{step}", self.run.reference)
        right = torch.tensor([self.run.right(example, one.text) for example, one in zip(asked, made, strict=True)]).float()
        while len(self.success) + len(fresh) > KNOWN and self.success:
            del self.success[next(iter(self.success))]
        self.success |= dict(zip(fresh, right.view(-1, self.config.attempts).mean(1).tolist(), strict=True))

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        everybody = torch.ones(len(batch.texts), dtype=torch.bool, device=batch.shaped.device)
        trajectory = standardise_members(batch.shaped, everybody, batch.group_size)
        made = trajectory[:, None].expand_as(batch.mask).clone()
        earned = [judge_stages(self.run.task, example, text) for example, text in zip(batch.examples, batch.texts, strict=True)]  # type: ignore[arg-type]
        valid = batch.correct.tolist()
        for stage in STAGES:
            reached = torch.tensor([stage in one for one in earned], device=batch.shaped.device)
            paid = batch.shaped.new_tensor([one.get(stage, 0.0) * fine for one, fine in zip(earned, valid, strict=True)])
            own = standardise_members(paid, reached, batch.group_size)
            self.log(f"stage/{stage}", reached.float().mean())
            for row in own.nonzero()[:, 0].tolist():
                made[row] += self.config.omega * own[row] * batch.span(row, *split_stages(batch.texts[row])[stage])
        return made

    def state(self) -> dict[str, Any]:
        return {"success": dict(self.success), "skills": {name: list(counts) for name, counts in self.skills.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self.success, self.skills = dict(state["success"]), {name: list(counts) for name, counts in state["skills"].items()}

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Problems written",
                (
                    Series("agentic-proposing/valid", "valid"),
                    Series("agentic-proposing/hard", "valid, solved at most half the time"),
                    Series("agentic-proposing/unsolved", "valid, never solved", dashed=True),
                ),
            ),
            Panel("Success rates of valid problems", (Series("agentic-proposing/success_of_valid"),), "histogram", low=0.0, high=1.0),
            Panel("Stages reached", tuple(Series(f"agentic-proposing/stage/{stage}", stage) for stage in STAGES)),
            Panel("Proficiency", tuple(Series(f"agentic-proposing/proficiency/{name}", name) for name in ("add", "take", "double"))),
        )


def weigh_skills(skills: Sequence[str], proficiency: dict[str, float], usual: float) -> float:
    """Mean of 1 / (proficiency + 0.1) over the skills of a prompt; ``usual``: of a skill not asked for so far, or of a prompt without any."""
    shares = [proficiency.get(name, usual) for name in skills] or [usual]
    return sum(1 / (share + ROOM) for share in shares) / len(shares)
