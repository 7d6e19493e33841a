"""GUI-Shepherd: a model that judges steps pays the turns of PPO, and picks the best of several actions (arXiv 2509.23738).

q(s_t, a_t) = 1[P(+ | question, reason) > 1/2]      of a generative process reward model (PRM): it writes a reason, then + or -
r_t = step q(s_t, a_t) - wrong (1 - q(s_t, a_t)) + [t = T] outcome 1[success]
delta_t = r_t + gamma V(s_{t+1}) - V(s_t),   A_t = sum_{k >= 0} (gamma lam)^k delta_{t+k}      the same for all tokens of turn t

The PRM is a copy of the policy that the run starts from, trained before the first step on moves of that policy's episodes, each with the reason and
the verdict of a rule. V is a head on the policy's last layer. Advantages are standardised over the turns of the batch; PPO's clip is the base's. At
step 0, wrong 0 and outcome 1 it is PPO with the final reward. Verification: at each turn ``candidates`` actions are sampled and the one with the
largest P(+) is made; it is measured now and then, beside plain sampling, and never trained on.

This is our reading of the abstract. A rule of the world ``rooms`` stands for the people and the large model that have labelled 52,000 steps. Where a
bad move costs nothing, walking to and fro earns as much as going on; ``wrong`` at 1 takes that away.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import estimate_advantages, pad_turns, spread_turns, z_score_unmasked
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.imitation import train_on_texts
from trainers.methods.room_steps import ask_about_turn, find_state_before
from trainers.methods.value_head import ValueHead, explain_variance
from trainers.rollouts.seats import Player
from trainers.worlds.base import END_THINK, State
from trainers.worlds.room_moves import GOOD, MOVES, choose_move, write_step_question, write_verdict

if TYPE_CHECKING:
    from trainers.methods.batch import RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node

PRM = "gui-shepherd"  # seat of the judge, and the name that its model is kept under
VERDICTS, OUTCOME = "verdicts", "outcome"  # in the notes of a completion: q of each of its turns, and whether it succeeded


def pay_turns(verdicts: Sequence[bool], success: bool, step: float, wrong: float, outcome: float) -> list[float]:
    """r_t of each turn."""
    made = [step if good else -wrong for good in verdicts]
    return [*made[:-1], made[-1] + outcome * success] if made else []


class Config(Strict):
    step: float = param(1.0, "Reward of a move that the judge calls good; 0: the outcome alone.", title="Good step", ge=0, le=10)
    wrong: float = param(0.0, "Taken for a move that it calls bad (not published).", title="Bad step", ge=0, le=10)
    outcome: float = param(1.0, "Added to the last turn's reward after success.", title="Outcome", ge=0, le=100)
    gamma: float = param(1.0, "How much less a turn later counts (not published).", title="Discount (gamma)", gt=0, le=1)
    lam: float = param(0.95, "Decay of the generalised advantages (not published).", title="Decay (lambda)", ge=0, le=1)
    labelled: int = param(2000, "Moves that the rule labels for the judge.", title="Labelled moves", ge=1, le=1_000_000)
    judge_steps: int = param(300, "Supervised steps of the judge, 32 moves each.", title="Steps of the judge", ge=1, le=100_000)
    judge_rate: float = param(1e-3, "Learning rate of the judge.", title="Judge's learning rate", gt=0, le=1)
    candidates: int = param(4, "Actions of which verification makes the best.", title="Best of (N)", ge=2, le=64)
    probe: int = param(32, "Prompts that verification is measured on; 0: never.", title="Probe prompts", ge=0, le=10_000)
    probe_every: int = param(20, "Steps between two measurements.", title="Probe every", ge=1, le=100_000, advanced=True)
    value_rate: float = param(3e-3, "Learning rate of the value head.", title="Value head's learning rate", gt=0, le=1, advanced=True)
    value_passes: int = param(20, "Gradient steps of the value head on each batch.", title="Value head's passes", ge=1, le=1000, advanced=True)


class GUIShepherd(Method):
    card = Card(
        name="gui-shepherd",
        title="Turns paid by a judge of steps",
        arxiv="2509.23738",
        system="GUI-Shepherd",
        base="grpo",
        provenance="abstract",
        source="the abstract; no official code was found",
        fit="needs-environment",
        idea="Train a generative judge on labelled steps; it pays every turn of PPO and picks the best of several actions.",
        formula=(
            r"r_t = q(s_t, a_t) + [t = T]\, 1[\mathrm{success}]",
            r"A_t = \sum_{k \ge 0} (\gamma \lambda)^k \left(r_{t+k} + \gamma V(s_{t+k+1}) - V(s_{t+k})\right)",
            r"a = \arg\max_{a_1..a_N} P(+ \mid s, a_i)",
        ),
        reading="the reward, GAE over turns, gamma and lambda, and that advantages are standardised over the batch",
        departures=(
            "A rule labels the steps and writes the reasons: the shortest way's next move. The paper has people and a large model.",
            "The judge is told the place in words, in place of screens and a history.",
            "The critic is a head on the policy's last layer, whose gradient stops there.",
        ),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"row_advantages": "makes"}
    worlds = frozenset({"rooms"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.head = ValueHead(run, self.config.value_rate, self.config.value_passes)
        if self.config.step or self.config.wrong or self.config.probe:
            self.judge = run.frozen("")
            rows = self.label_steps()
            self.log("judge_loss", train_on_texts(run, self.judge, rows, self.config.judge_steps, self.config.judge_rate, run.rng(PRM, "judge")))
            run.keep_other(PRM, self.judge)

    def label_steps(self) -> list[tuple[list[Message], str]]:
        """Questions about moves of the first policy's episodes, half of them about another move at the same place, each with the rule's verdict."""
        spec, found = self.run.attempt.spec, list[tuple[list[Message], str]]()
        rng = self.run.rng(PRM, "labels")
        examples = self.run.task.examples("train", max(1, self.config.labelled // 8), spec.seed, spec.task.difficulty)
        size = self.run.attempt.sampling_batch
        for start in range(0, len(examples), size):
            session = self.run.session(examples[start : start + size], (PRM, "labels", start), model=self.judge)
            for leaf in session.play([episode.root for episode in session.begin()]):
                data = leaf.episode.example.data
                for state, made in list_moves(leaf):
                    move = made if rng.random() < 0.5 else rng.choice(MOVES)
                    found.append(([Message("user", write_step_question(data, state, move))], write_verdict(data, state, move)))
        rng.shuffle(found)
        return found[: self.config.labelled]

    def rollout(self, session: "Session") -> "list[Completion]":
        if self.config.probe and ((session.step - 1) % self.config.probe_every == 0 or session.step == session.total_steps):
            self.probe_verification(session.step)
        leaves = session.play([episode.root for episode in session.begin()])
        turns = [turn[-1] for leaf in leaves for turn in leaf.episode.turns(leaf)]
        pays = bool(self.config.step or self.config.wrong)
        scores = self.judge_turns(session, turns) if pays else {}
        notes = {}
        for place, leaf in enumerate(leaves):
            own = [scores.get(id(turn[-1]), 0.0) > 0.5 for turn in leaf.episode.turns(leaf)]
            notes[place] = {VERDICTS: own, OUTCOME: session.is_right(leaf)}
        if pays:
            self.report_verdicts(leaves, notes)
        return session.finish(leaves, notes=notes)

    def judge_turns(self, session: "Session", turns: "Sequence[Node]") -> dict[int, float]:
        """P(+) of the move that ends at each node, by the node's identity; a turn that is no move has none. Equal questions are asked once."""
        session.players[PRM] = Player("folder", folder=PRM, trained=False)
        questions = {id(turn): question for turn in turns if (question := ask_about_turn(turn))}
        first = {questions[id(turn)]: turn for turn in reversed(turns) if id(turn) in questions}
        if not first:
            return {}
        asked = [[Message("user", question)] for question in first]
        answers = [one for (one,) in session.ask(PRM, list(first.values()), asked, max_tokens=16, temperature=0.0)]
        reasons = [answer.text.rpartition(END_THINK) for answer in answers]
        places = [above for answer in answers if (above := answer.episode.parent(answer)) is not None]
        found = session.likelihood(places, [before + closing + GOOD for before, closing, _ in reasons])
        chances = {question: float(torch.tensor(row[-1]).exp()) for question, row in zip(first, found, strict=True)}
        for turn in turns:
            if id(turn) in questions:
                turn.notes["P(+)"] = chances[questions[id(turn)]]
        return {key: chances[question] for key, question in questions.items()}

    def report_verdicts(self, leaves: "Sequence[Node]", notes: dict[int, dict[str, Any]]) -> None:
        """Agreement of the verdicts with the rule and with the outcome."""
        agree, good = list[bool](), {True: list[float](), False: list[float]()}
        for place, leaf in enumerate(leaves):
            verdicts = notes[place][VERDICTS]
            for (state, move), verdict in zip(list_moves(leaf), verdicts, strict=False):
                agree.append(verdict == (move == choose_move(leaf.episode.example.data, state)))
            good[notes[place][OUTCOME]].append(sum(verdicts) / len(verdicts))
        if agree:
            self.log("judge_accuracy", sum(agree) / len(agree))
        for success, shares in good.items():
            if shares:
                self.log("good_in_success" if success else "good_in_failure", sum(shares) / len(shares))

    def probe_verification(self, step: int) -> None:
        """Success on prompts that are not trained on, with and without the best of several actions at each turn."""
        spec = self.run.attempt.spec
        examples = self.run.task.examples("pairs", self.config.probe, spec.seed, spec.task.difficulty)
        session = self.run.session(examples, (PRM, step))
        plain = session.play([episode.root for episode in session.begin()])
        self.log("best_of_1", sum(map(session.is_right, plain)) / len(plain))
        best = self.play_verified(session, [episode.root for episode in session.begin()])
        self.log("best_of_n", sum(map(session.is_right, best)) / len(best))

    def play_verified(self, session: "Session", at: "Sequence[Node]") -> "list[Node]":
        """Leaves of episodes of which each turn is the best of several; what was not chosen stays in the tree."""
        nodes, count = list(at), self.config.candidates
        while going := [place for place, node in enumerate(nodes) if not node.finish]:
            made = session.play([node for place in going for node in session.branch(nodes[place], count, "candidate")], turns=1)
            turns = [one.episode.turns(one)[-1][-1] for one in made]
            scores = self.judge_turns(session, turns)
            for number, place in enumerate(going):
                here = range(number * count, (number + 1) * count)
                nodes[place] = made[max(here, key=lambda one: scores.get(id(turns[one]), 0.0))]
        return nodes

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        config, turns = self.config, batch.turns()
        notes = [batch.rollout.notes[member] for member in batch.members.tolist()]
        paid = [pay_turns(note.get(VERDICTS, []), note.get(OUTCOME, False), config.step, config.wrong, config.outcome) for note in notes]
        width = max(1, int(turns.max()) + 1)
        rewards = pad_turns(paid, width)[:, :width].to(advantages)
        mask = torch.stack([(turns == turn).any(1) for turn in range(width)], 1).to(rewards)
        starts = [[int((turns[row] == turn).nonzero()[0]) for turn in range(width) if mask[row, turn]] for row in range(len(turns))]
        prompts = [batch.rollout.prompt_ids[member] for member in batch.members.tolist()]
        states = self.head.read_states(prompts, batch.ids.tolist(), starts)
        values = torch.zeros_like(rewards)
        values[mask.bool()] = self.head.estimate(states).to(rewards)
        made = estimate_advantages(rewards, values, mask, config.gamma, config.lam)
        targets = (made + values)[mask.bool()]
        self.log("explained", explain_variance(values[mask.bool()], targets))
        self.log("value_error", self.head.fit(states, targets))
        self.log("turn_reward", (rewards * mask).sum(1).mean())
        return spread_turns(z_score_unmasked(made, mask), turns)

    def state(self) -> dict[str, Any]:
        return {"head": self.head.state(), **({"judge": self.judge.state_dict()} if PRM in self.run.others else {})}

    def restore(self, state: dict[str, Any]) -> None:
        self.head.restore(state["head"])
        if "judge" in state:
            self.judge.load_state_dict(state["judge"])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Verdicts of the judge",
                (
                    Series(f"{name}/judge_accuracy", "as the rule"),
                    Series(f"{name}/good_in_success", "good moves in successes", dashed=True),
                    Series(f"{name}/good_in_failure", "good moves in failures", dashed=True),
                ),
            ),
            Panel("Best of several actions", (Series(f"{name}/best_of_n", "verified"), Series(f"{name}/best_of_1", "sampled", dashed=True))),
            Panel("Value head", (Series(f"{name}/explained", "explained variance"), Series(f"{name}/value_error", "squared error", dashed=True))),
        )


def list_moves(leaf: "Node") -> list[tuple[State, str]]:
    """The state and the move of each turn on the way to a leaf; an episode ends at a turn that is no move."""
    turns = [turn[-1] for turn in leaf.episode.turns(leaf)]
    return [(find_state_before(turn), turn.facts["query"]) for turn in turns if turn.facts.get("query") in MOVES]
