"""T-POP: two answers are decoded, one of them optimistic where a person's taste is unknown, and clicks fit a reward head meanwhile (2509.24696).

Candidates at each position: the k likeliest tokens of either arm.  phi([y, v]): mean of the last layer over y and v, by the root of its width
    exploit: argmax_v pi(v | y1) + w theta phi([y1, v])
    explore: argmax_v pi(v | y2) + w theta phi([y2, v]) + w nu u(v),  u = sqrt(g V^-1 g),  g = phi([y2, v]) - phi([y1, v1])
    V <- V + g g^T of the token taken;  V_0 = lam I
After both answers the user says which is better, and theta minimises, over all that was said,
    -sum log sigmoid(theta (phi(better) - phi(worse))) + lam |theta|^2

The policy stays as it is. Of the members of a group the first, third, .. are the exploit arm's answer, the others the explore arm's; with nu = 0 both
are the same, and nothing is learnt. Held-out prompts get the exploit arm alone and teach nothing. The user is a rule that likes short answers, or
long ones, and none that says nothing; the same rule ranks pairs that the policy has sampled before, on which the head is measured. It differs from
its parent, plain sampling, in the decoding: with w = 0 both arms are greedy.

Our reading of the abstract and of notes that quote the equations: w, nu, k and lam are not known, and neither is the network, which is linear here,
so that its gradient is phi. Each candidate takes a pass over the whole text, without a cache: an answer takes some 2 k passes a token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.maths.logistic import fit_logistic_regression
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.hidden_states import read_hidden_states
from trainers.policies.next_tokens import read_next_tokens
from trainers.policies.sampling import Completion, end_ids

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session

PROBES = 32  # questions of the held-out pairs
NAMES = ("exploit", "explore")


def measure_bonus(gaps: Tensor, inverse: Tensor) -> Tensor:
    """(n, D), (D, D) = V^-1 -> (n,) u."""
    return torch.einsum("nd,de,ne->n", gaps, inverse, gaps).clamp(min=0).sqrt()


def update_inverse(inverse: Tensor, gap: Tensor) -> Tensor:
    """(V + g g^T)^-1 from V^-1, by Sherman and Morrison."""
    moved = inverse @ gap
    return inverse - torch.outer(moved, moved) / (1 + gap @ moved)


def grade_length(length: int, user: str) -> float:
    """How much a user likes an answer of so many tokens; nobody likes one that says nothing."""
    if not length:
        return -math.inf
    return float(-length if user == "short" else length)


def fit_taste(gaps: Tensor, lam: float) -> Tensor:
    """(n, D) phi(better) - phi(worse) -> (D,) theta; the same sum as a mean with a ridge of 2 lam / n."""
    return fit_logistic_regression(gaps, torch.ones(len(gaps)), 2 * lam / len(gaps)).float()


@dataclass
class Arm:
    """An answer that is being decoded. ``total``: sum of its states; ``chances`` (V,): of what may follow."""

    prompt: list[int]
    chances: Tensor
    total: Tensor
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def features(self) -> Tensor:
        """(D,) phi; 0 before the first token."""
        return self.total / max(1, len(self.ids)) / len(self.total) ** 0.5

    def extend_features(self, states: Tensor) -> Tensor:
        """(n, D) phi with one more token each, whose states are given."""
        return (self.total + states) / (len(self.ids) + 1) / len(self.total) ** 0.5

    def append_token(self, token: int, state: Tensor, following: Tensor, ends: Sequence[int]) -> None:
        self.logprobs.append(float(self.chances[token].clamp(min=1e-30).log()))
        self.ids.append(token)
        self.total, self.chances, self.ended = self.total + state, following, token in ends


class Config(Strict):
    weight: float = param(0.1, "Weight of the reward head beside the policy's chances (our value); 0: both arms are greedy.", title="w", ge=0, le=100)
    bonus: float = param(1.0, "Weight of what is not known about the taste (our value); 0: both arms are the same.", title="nu", ge=0, le=100)
    candidates: int = param(10, "Likeliest tokens of either arm that are tried at each position (our value).", title="k", ge=1, le=100)
    ridge: float = param(0.1, "How much is known before the first click (our value).", title="lambda", gt=0, le=100)
    user: Literal["short", "long"] = param("short", "What the simulated user likes: short answers, or long ones.", title="User")


class TPOP(Method):
    card = Card(
        name="t-pop",
        title="A person's taste from clicks while decoding",
        arxiv="2509.24696",
        system="T-POP",
        base="procedure",
        provenance="abstract",
        source="abstract; public notes that quote the equations",
        fit="variant",
        idea="Decode two answers, one optimistic where the taste is unknown, and fit a reward head to what a person prefers; no weight changes.",
        formula=(
            r"s(v) = \pi(v | y) + w\, \theta^\top \phi([y, v]) + w \nu \sqrt{g^\top V^{-1} g}",
            r"\theta = \mathrm{arg}\min - \sum \log \sigma\left(\theta^\top (\phi(y^+) - \phi(y^-))\right) + \lambda \lVert \theta \rVert^2",
        ),
        reading="the head, its features, and w, nu, k and lambda",
        departures=(
            "The head is linear in the mean of the policy's last layer, not a network.",
            "A rule that likes short answers, or long ones, is the user.",
            "The taste is fitted after each round of the run, for all of its prompts, not in the background after each click.",
        ),
        claim=("heldout/length", "lower"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.gaps: list[list[float]] = []  # phi(better) - phi(worse) of every click
        self.theta = self.inverse = torch.empty(0)
        self.probes: Tensor | None = None  # (n, D) the same of held-out pairs

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        if run.task.max_turns > 1:
            message = "its answers go over several turns, and two are decoded side by side here"
            raise SpecError([Problem("task.name", run.task.name, message, "choose a task that is answered in one turn")])
        self.ends = end_ids(run.model, run.tokenizer)
        size = run.model.config.get_text_config().hidden_size
        if not self.theta.numel():
            self.theta, self.inverse = torch.zeros(size), torch.eye(size) / self.config.ridge
        self.theta, self.inverse = self.theta.to(run.device), self.inverse.to(run.device)

    def rollout(self, session: "Session") -> list[Completion]:
        clicks, made = list[Tensor](), list[Completion]()
        for start in range(0, len(session.examples), session.group_size):
            (prompt,) = self.run.prompt_ids([session.prompts[start]])
            arms = self.decode_arms(session, prompt)
            made += [self.complete_arm(arms[place % len(arms)]) for place in range(session.group_size)]
            self.run.written_tokens += sum(len(arm.ids) for arm in arms)
            if session.learns:
                clicks += self.ask_user(arms)
        if session.learns:
            self.fit_clicks(session, clicks)
        return made

    def decode_arms(self, session: "Session", prompt: list[int]) -> list[Arm]:
        """Both arms' answers; of a session that may not learn the exploit arm's alone."""
        states, chances = read_next_tokens(session.model, prompt[:-1], prompt[-1:])
        arms = [Arm(prompt, chances[0], torch.zeros_like(states[0])) for _ in range(2 if session.learns else 1)]
        while not all(arm.ended for arm in arms):
            tokens = self.list_candidates([arm for arm in arms if not arm.ended])
            for number, arm in enumerate(arms):
                if not arm.ended:
                    self.take_token(session, arm, tokens, arms[0] if number else None)
                    arm.ended |= len(arm.ids) >= session.max_tokens
        return arms

    def list_candidates(self, arms: Sequence[Arm]) -> list[int]:
        found = {int(token) for arm in arms for token in arm.chances.topk(min(self.config.candidates, len(arm.chances))).indices}
        return sorted(found)

    def take_token(self, session: "Session", arm: Arm, tokens: Sequence[int], exploit: Arm | None) -> None:
        """The next token of an arm. ``exploit``: the other arm, which has its token already, where this one explores."""
        states, following = read_next_tokens(session.model, [*arm.prompt, *arm.ids], tokens)
        features = arm.extend_features(states)
        scores = arm.chances[list(tokens)] + self.config.weight * (features @ self.theta)
        gaps = features - exploit.features if exploit is not None else None
        if gaps is not None:
            bonus = measure_bonus(gaps, self.inverse)
            scores = scores + self.config.weight * self.config.bonus * bonus
        best = int(scores.argmax())
        if gaps is not None:
            self.log("bonus", bonus[best])
            self.inverse = update_inverse(self.inverse, gaps[best])
        arm.append_token(tokens[best], states[best], following[best], self.ends)

    def complete_arm(self, arm: Arm) -> Completion:
        made = Completion(list(arm.prompt))
        made.add("assistant", list(arm.ids), list(arm.logprobs), [0.0] * len(arm.ids))
        made.text = self.run.tokenizer.decode(made.ids, skip_special_tokens=True)
        made.finish_reason = "stop" if arm.ids[-1] in self.ends else "length"
        return made

    def prefers_first(self, lengths: Sequence[int]) -> bool | None:
        """Which of two answers of so many tokens, the end token left out, the user likes better; None for none."""
        first, second = (grade_length(length, self.config.user) for length in lengths)
        return None if first == second else first > second

    def count_tokens(self, ids: Sequence[int]) -> int:
        return sum(id_ not in self.ends for id_ in ids)

    def ask_user(self, arms: Sequence[Arm]) -> list[Tensor]:
        """phi(better) - phi(worse), or nothing where the user has no preference."""
        self.log("same", float(arms[0].ids == arms[1].ids))
        for name, arm in zip(NAMES, arms, strict=True):
            self.log(f"length_{name}", float(len(arm.ids)))
        first = self.prefers_first([self.count_tokens(arm.ids) for arm in arms])
        gap = arms[0].features - arms[1].features
        return [] if first is None else [gap if first else -gap]

    def fit_clicks(self, session: "Session", clicks: Sequence[Tensor]) -> None:
        self.gaps += [gap.tolist() for gap in clicks]
        self.log("clicks", float(len(self.gaps)))
        if clicks:
            self.theta = fit_taste(torch.tensor(self.gaps), self.config.ridge).to(self.theta)
        if self.probes is None:
            self.probes = self.sample_probes()
        if len(self.probes):
            right = self.probes @ self.theta
            self.log("pair_accuracy", ((right > 0).float() + 0.5 * (right == 0).float()).mean())

    def sample_probes(self) -> Tensor:
        """(n, D) phi(better) - phi(worse) of pairs of answers to other questions, sampled from the policy and ranked by the user."""
        spec = self.run.attempt.spec
        examples = [one for one in self.run.task.examples("pairs", PROBES, spec.seed, spec.task.difficulty) for _ in range(2)]
        made = self.run.sample(examples, 1.0, "t-pop/probes")
        rows = [[*one.prompt_ids, *one.ids] for one in made]
        places = [range(len(one.prompt_ids), len(row)) for one, row in zip(made, rows, strict=True)]
        states, ends = read_hidden_states(self.run, rows, places), list(accumulate(map(len, places)))
        means = [states[end - len(place) : end].mean(0) for place, end in zip(places, ends, strict=True)]
        features = torch.stack(means) / states.shape[1] ** 0.5
        gaps = list[Tensor]()
        for place in range(0, len(made), 2):
            first = self.prefers_first([self.count_tokens(one.ids) for one in made[place : place + 2]])
            if first is not None:
                gap = features[place] - features[place + 1]
                gaps.append(gap if first else -gap)
        return torch.stack(gaps) if gaps else features[:0]

    def state(self) -> dict[str, Any]:
        return {"gaps": self.gaps, "theta": self.theta.cpu(), "inverse": self.inverse.cpu()}

    def restore(self, state: dict[str, Any]) -> None:
        self.gaps = state["gaps"]
        self.theta, self.inverse = state["theta"].to(self.theta.device), state["inverse"].to(self.inverse.device)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Held-out pairs that the head ranks as the user does", (Series(f"{name}/pair_accuracy", "share"),)),
            Panel("Tokens of an answer", tuple(Series(f"{name}/length_{arm}", f"{arm} arm") for arm in NAMES), unit="tokens"),
            Panel("What is not known", (Series(f"{name}/bonus", "bonus of a token"), Series(f"{name}/same", "both answers the same", dashed=True))),
            Panel("Clicks", (Series(f"{name}/clicks", "so far"),)),
        )
