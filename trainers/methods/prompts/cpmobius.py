"""CPMobius: a coach writes the problems that a player learns from, and learns from how much the player has gained (arXiv 2602.02979).

The coach, a second copy of the policy that the run starts from, is asked for a problem for each group. The player, the policy in training, gives G
answers to each. r = +1 for the group's most frequent result where that is the only one, else -1; no reference is used. A problem is kept if between
``low`` and ``high`` of its answers get +1, and written anew otherwise, ``rounds`` times at most; then its group is left out of the loss. After the
player's update S is its greedy accuracy on a fixed set of validation prompts, D = 100 (S_t - S_{t-1}), and the coach is rewarded for problem q:
    advantage: R = D Abar(q), Abar the mean of the non-zero token advantages of its answers;  delta: R = D;  reward: R = D mean(r).
R = -1, whatever D, where that mean is 0, as for answers of equal length (the authors' code).
The coach's update is REINFORCE with A = R on its tokens, minus a KL penalty to the policy it started from; it is skipped where D = 0. The player is
kept when D > 0; after ``patience`` steps without a gain, from step ``rollback_from`` on, its weights go back to those. Its loss is the base's.

Training prompts are slots that the coach's problems fill, so that each row is scored and shown with the problem that was asked. A problem that the
task cannot read is not asked. Coach and player share no weights. Without a learning rate for the coach it stays as it was.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.maths.advantages import EPSILON, centre_by_group
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.policies.sampling import Completion, Sampler, Sampling
from trainers.tasks.base import Example
from trainers.texts.problems import read_problem
from trainers.texts.spans import extract_answer
from trainers.worlds.problems import REQUEST, Problems

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session


NOTHING = 1e-6  # a mean nearer to 0 is 0


@dataclass(eq=False)
class Slot:
    """A training example whose problem is written while training; it has what an ``Example`` has."""

    prompt: list[Message]
    reference: str
    data: dict[str, Any] = field(default_factory=dict)

    def take(self, problem: Example) -> None:
        self.prompt, self.reference, self.data = list(problem.prompt), problem.reference, dict(problem.data)


@dataclass
class Written:
    """A problem of the coach that was kept: its tokens, and what the player made of it."""

    prompt_ids: list[int]
    ids: list[int]
    mask: list[int]
    worth: float | None = None  # Abar, 1 or mean(r); None where that is 0


def reward_majority(results: Sequence[str | None]) -> list[float]:
    """+1 for members whose result is the only most frequent one of their group, else -1; None is no result."""
    counts = Counter(result for result in results if result is not None).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return [-1.0] * len(results)
    return [1.0 if result == counts[0][0] else -1.0 for result in results]


def average_nonzero(values: Tensor) -> float | None:
    """Any shape -> the mean of those that are not 0; None where there are none, or where they cancel out."""
    there = values[values != 0]
    mean = float(there.mean()) if there.numel() else 0.0
    return mean if abs(mean) > NOTHING else None


def compute_coach_loss(logprobs: Tensor, reference: Tensor, mask: Tensor, rewards: Tensor, kl: float) -> Tensor:
    """(B, T) of the coach and its reference, (B, T), (B,) -> scalar to minimise: -R log pi + kl k3, averaged over tokens."""
    ratio = reference - logprobs
    values = -rewards[:, None] * logprobs + kl * (torch.expm1(ratio) - ratio)
    return (values * mask).sum() / mask.sum().clamp(min=1)


def weigh_answers(kind: str, rewards: Tensor, mask: Tensor) -> float | None:
    """(G,), (G, T) -> what the player's gain is multiplied by for a problem; None for nothing."""
    if kind == "delta":
        return 1.0
    if kind == "reward":
        return average_nonzero(rewards)
    advantages = centre_by_group(rewards, len(rewards)) / (rewards.std() + EPSILON)
    return average_nonzero(advantages[:, None] * mask)


class Config(Strict):
    low: float = param(0.2, "Lowest share of majority answers of a problem that is kept.", title="Kept from", ge=0, le=1)
    high: float = param(0.8, "Highest share of majority answers of a problem that is kept.", title="Kept up to", ge=0, le=1)
    rounds: int = param(4, "Times a problem is written for a group until one is kept (our value).", title="Tries", ge=1, le=64)
    coach_reward: Literal["advantage", "delta", "reward"] = param(
        "advantage",
        "What the player's gain is multiplied by: mean advantage (the authors' code), 1 (their paper), mean reward.",
        title="Coach's reward",
    )
    learning_rate: float = param(1e-4, "Learning rate of the coach; 0 freezes it.", title="Coach's learning rate", ge=0, le=1)
    kl: float = param(0.001, "KL weight of the coach.", title="Coach's KL weight", ge=0, le=10)
    temperature: float = param(1.0, "Sampling temperature of the coach.", title="Coach's temperature", gt=0, le=10)
    validation: int = param(64, "Validation prompts, answered greedily after each update.", title="Validation prompts", ge=1, le=10_000)
    patience: int = param(15, "Steps without a gain after which the player goes back to its last gain.", title="Patience", ge=1, advanced=True)
    rollback_from: int = param(200, "First step at which it may.", title="Roll back from step", ge=1, advanced=True)


class CPMobius(Method):
    card = Card(
        name="cpmobius",
        title="Coach and player",
        arxiv="2602.02979",
        system="CPMobius",
        base="grpo",
        provenance="code",
        source="github ASL-r/CPMobius: run script, verl/trainer/main_ppo.py, verl/trainer/ppo/ray_trainer.py",
        fit="core",
        idea="A coach is paid for problems that make the player better, a player for agreeing with itself; no outside data is used.",
        formula=(
            r"r_i = 1\ \mathrm{if}\ a_i = \mathrm{maj}(a_1..a_G)\ \mathrm{else}\ {-1}, \quad 0.2 \le \mathrm{share}(r = 1) \le 0.8",
            r"D_t = 100\, (S_t - S_{t-1}), \quad R_c(q) = D_t\, \bar A(q)",
        ),
        departures=(
            "Problems are chains of the world; those that it cannot read are never asked.",
            "Player and coach start from one policy; the authors' are two models.",
            "No entropy terms, repetition penalty or top-p; the player's KL penalty is the run's beta.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes"}
    owns = frozenset({"rollout"})
    worlds = frozenset({"problems"})
    requires = (
        Requirement("training.num_iterations", "equals", 1, "the coach is paid for one update of the player"),
        Requirement("task.options.ask", "equals", "solve", "the player solves problems"),
    )

    def prepare(self, run: "RunContext") -> None:
        if not (isinstance(run.task, Problems) and run.task.config.ask == "solve"):
            message = "its prompts are not all problems to solve"
            raise SpecError([Problem("task.name", run.task.name, message, "choose the world problems with the option ask: solve")])
        self.run = run
        self.coach = run.frozen("").requires_grad_(True)
        self.optimizer = torch.optim.AdamW(self.coach.parameters(), lr=self.config.learning_rate, weight_decay=0.0)
        self.written: list[Written] = []  # of the step before
        self.score: float | None = None
        self.best: dict[str, Tensor] = {}  # the player's weights after its last gain
        self.without_gain = 0
        spec = run.attempt.spec
        self.validation = run.task.examples("pairs", self.config.validation, spec.seed, spec.task.difficulty)

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        return [Slot(list(example.prompt), example.reference, dict(example.data)) for example in rows]

    def rollout(self, session: "Session") -> list[Completion]:
        self.look_back(session)
        size = session.group_size
        groups = list(range(0, len(session.examples), size))  # by their first row
        waiting, made, problems = groups, dict[int, Completion](), dict[int, Written]()
        for attempt in range(self.config.rounds):
            asked = self.write(session, waiting, attempt, problems)
            made |= answer_groups(session, asked)
            waiting = [start for start in waiting if start not in asked or not self.keeps([made[start + member].text for member in range(size)])]
            if not waiting:
                break
        made |= answer_groups(session, [start for start in waiting if start not in made])  # the coach wrote no problem for them
        kept = [start for start in groups if start not in waiting]
        self.written = [problems[start] for start in kept]
        self.log("kept_groups", len(kept) / len(groups))
        for row, one in made.items():
            start = row - row % size
            one.notes |= {"problem": kept.index(start)} if start in kept else {"filtered": "no problem was kept for the group (cpmobius)"}
        return [made[row] for row in range(len(session.examples))]

    def write(self, session: "Session", waiting: Sequence[int], attempt: int, problems: dict[int, Written]) -> list[int]:
        """Has the coach write a problem for each group that waits; those that the task can read fill its rows. Returns the groups that got one."""
        request = Example([Message("user", REQUEST.format(skills=""))], "", {"kind": "write", "skills": []})
        key = f"cpmobius/{session.step}/{session.rng.random()}/{attempt}"
        texts = self.run.sample([request] * len(waiting), self.config.temperature, key, self.coach)
        found = []
        for start, one in zip(waiting, texts, strict=True):
            problem = read_problem(self.run.task, extract_answer(one.text) or "")
            if problem is None:
                continue
            found.append(start)
            problems[start] = Written(one.prompt_ids, list(one.ids), list(one.mask))
            slot: Any = session.examples[start]
            slot.take(problem)
            for member in range(session.group_size):
                session.examples[start + member], session.prompts[start + member] = slot, list(problem.prompt)
        self.log("readable", len(found) / len(waiting))
        return found

    def keeps(self, texts: Sequence[str]) -> bool:
        """Whether a problem is neither too easy nor too hard for the player."""
        rewards = reward_majority([extract_answer(text) for text in texts])
        return self.config.low <= rewards.count(1.0) / len(rewards) <= self.config.high

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        results = [extract_answer(text) for text in batch.texts]
        size = batch.group_size
        made = [reward for start in range(0, len(results), size) for reward in reward_majority(results[start : start + size])]
        agreed = torch.tensor(made, device=rewards.device) > 0
        self.log("agreement", agreed.float().mean())
        self.log("majority_right", (batch.correct & agreed).sum() / agreed.sum().clamp(min=1))
        self.log("operations", sum(example.prompt[-1].content.count(" ") - 2 for example in batch.examples) / len(batch.examples))
        return rewards.new_tensor(made)

    def observe(self, batch: "RolloutBatch") -> None:
        """What each kept problem is worth to the coach; the player's gain is known after its update."""
        size = batch.group_size
        for start in range(0, len(batch.texts), size):
            if (number := batch.notes[start].get("problem")) is not None:
                rows = slice(start, start + size)
                self.written[number].worth = weigh_answers(self.config.coach_reward, batch.shaped[rows], batch.mask[rows])

    def look_back(self, session: "Session") -> None:
        """After the player's update: its gain, the coach's update, and the rollback."""
        how = Sampling(0.0, session.max_tokens, self.run.attempt.sampling_batch, statistics=False)
        answers = Sampler(session.model, self.run.tokenizer, self.run.task, how).complete(self.validation)
        score = sum(session.right(self.validation, answers)) / len(answers)
        gain = 0.0 if self.score is None else 100 * (score - self.score)
        self.log("validation", score)
        self.log("gain", gain)
        if gain and self.written and self.config.learning_rate:
            self.teach_coach(gain)
        self.without_gain = 0 if gain > 0 or self.score is None else self.without_gain + 1
        self.score, self.written = score, []
        weights = dict(session.model.named_parameters())
        if gain > 0:
            self.best = {name: value.detach().clone() for name, value in weights.items() if value.requires_grad}
        elif self.best and session.step > self.config.rollback_from and self.without_gain >= self.config.patience:
            with torch.no_grad():
                for name, value in self.best.items():
                    weights[name].copy_(value)
            self.without_gain, self.score = 0, None  # the gain of going back is no gain of a problem
            self.log("rolled_back", 1.0)

    def teach_coach(self, gain: float) -> None:
        prompts, ids = [one.prompt_ids for one in self.written], [one.ids for one in self.written]
        logprobs, there = self.run.logprobs(prompts, ids, self.coach)
        with torch.no_grad():
            reference, _ = self.run.logprobs(prompts, ids, self.run.reference)
        own = torch.zeros_like(there)
        for row, one in enumerate(self.written):
            own[row, : len(one.mask)] = torch.tensor(one.mask, dtype=own.dtype, device=own.device)
        rewards = own.new_tensor([-1.0 if one.worth is None else gain * one.worth for one in self.written])
        self.log("coach_reward", rewards.mean())
        torch.autograd.backward(compute_coach_loss(logprobs, reference, there * own, rewards, self.config.kl))
        torch.nn.utils.clip_grad_norm_(self.coach.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        return {
            "coach": self.coach.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "written": [(one.prompt_ids, one.ids, one.mask, one.worth) for one in self.written],
            "score": self.score,
            "best": dict(self.best),
            "without_gain": self.without_gain,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.coach.load_state_dict(state["coach"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.written = [Written(*one) for one in state["written"]]
        self.score, self.best, self.without_gain = state["score"], dict(state["best"]), state["without_gain"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Problems of the coach",
                (
                    Series("cpmobius/readable", "readable"),
                    Series("cpmobius/kept_groups", "groups with a problem that was kept"),
                    Series("cpmobius/agreement", "answers of the majority", dashed=True),
                    Series("cpmobius/majority_right", "majority answers that are right", dashed=True),
                ),
            ),
            Panel("Player on the validation prompts", (Series("cpmobius/validation", "accuracy"),)),
            Panel("Gain and the coach's reward", (Series("cpmobius/gain", "gain"), Series("cpmobius/coach_reward", "reward"))),
            Panel("Length of problems", (Series("cpmobius/operations"),), unit="operations"),
        )


def answer_groups(session: "Session", starts: Sequence[int]) -> dict[int, Completion]:
    """Row -> the player's answer, for the groups that begin in these rows."""
    rows = [start + member for start in starts for member in range(session.group_size)]
    if not rows:
        return {}
    answers = session.complete([session.prompts[row] for row in rows], [session.examples[row] for row in rows])
    return dict(zip(rows, answers, strict=True))
