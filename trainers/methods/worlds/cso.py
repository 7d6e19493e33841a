"""CSO: a step of a failed episode becomes a pair where another action there was played on to success (arXiv 2602.03412).

tau = (s_1, a_1, .., s_T, a_T) an episode that failed;  a^1_t .. a^K_t  the expert's actions at s_t;  r(s, a) in [0, 1] a process reward model
step t is a candidate      r(s_t, a_t) < low  and  max_j r(s_t, a^j_t) > high,   a+ the action with the largest r
it becomes a pair          where the policy, playing on from (s_t, a+), succeeds
L = -log sigmoid(beta [log pi/pi_ref(a+ | s_t) - log pi/pi_ref(a_t | s_t)])      over the tokens of the two actions alone

It differs from DPO in its pairs, which it makes from the policy's own episodes before training; those it is given are not used. ``pairs``
leaves the verification out, or takes whole episodes, a success and a failure of one prompt, in place of steps: what the paper compares with.

In the world ``rooms`` the expert is the shortest way, which errs as often as ``expert_noise`` says, and the reward model is a rule that takes a good
move for a bad one, or a bad one for a good one, as often as ``judge_noise`` says. It gives the same move at the same place the same score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.data.episode_samples import continue_episodes, write_pieces, write_replay
from trainers.data.pair_rows import to_answer_messages
from trainers.data.turn_masks import OWN, TurnMasks, list_own_spans
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example, digest_example
from trainers.worlds.base import POLICY, Replay, State, World
from trainers.worlds.room_moves import MOVES, choose_move
from trainers.worlds.tool_use import write_call

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

Row = dict[str, Any]


def find_better_action(own: float, others: Sequence[float], low: float, high: float) -> int | None:
    """The expert's action with the highest score, where the step is a candidate; None where it is none."""
    best = max(range(len(others)), key=lambda place: others[place], default=None)
    return best if best is not None and own < low and others[best] > high else None


def propose_moves(best: str, count: int, noise: float, rng: "random.Random") -> list[str]:
    """The expert's actions: each is the best move, or with the probability ``noise`` any."""
    return [rng.choice(MOVES) if rng.random() < noise else best for _ in range(count)]


def score_move(is_best: bool, noise: float, rng: "random.Random") -> float:
    """r of a move: above 1/2 for one that the rule takes for good, below for others."""
    taken_for_good = is_best != (rng.random() < noise)
    return 0.5 + 0.5 * rng.random() if taken_for_good else 0.5 * rng.random()


@dataclass(frozen=True)
class Graft:
    """Another action at one turn of a failed episode."""

    example: Example
    episode: Replay
    turn: int
    action: str

    @property
    def state(self) -> State | None:
        """Of the world before the turn; None before the first."""
        return self.episode.turns[self.turn - 1].step.state if self.turn else None


class Config(Strict):
    prompts: int = param(200, "Prompts that episodes are sampled for.", ge=1, le=1_000_000)
    episodes: int = param(2, "Episodes of each prompt, of which the failed ones are looked at.", title="Episodes", ge=1, le=64)
    proposals: int = param(5, "Actions of the expert at each step.", title="Expert's actions (K)", ge=1, le=64)
    expert_noise: float = param(0.3, "How often the expert proposes any move.", title="Expert's noise", ge=0, le=1)
    judge_noise: float = param(0.2, "How often the reward model takes good for bad, or bad for good.", title="Reward model's noise", ge=0, le=0.5)
    low: float = param(0.45, "Score below which the policy's action is bad (paper; the code has .5).", title="Bad below", ge=0, le=1)
    high: float = param(0.65, "Score above which the expert's is good (paper; the code has .6).", title="Good above", ge=0, le=1)
    pairs: Literal["verified", "unverified", "episodes"] = param(
        "verified", "verified: steps played on to success. unverified: all candidates. episodes: a whole success and a whole failure.", title="Pairs"
    )
    most: int = param(0, "Pairs at most, drawn at random; 0: all that there are.", title="Most pairs", ge=0, le=1_000_000)
    temperature: float = param(1.0, "Of the episodes and of what is played on.", gt=0, le=10, advanced=True)


class CSO(Method):
    card = Card(
        name="cso",
        title="Verified critical steps",
        arxiv="2602.03412",
        system="CSO",
        base="dpo",
        provenance="code",
        source="github kiaia/CSO: README, scripts/data_processing/verify_and_generate_dpo.py; thresholds of the paper from a note on it",
        fit="core",
        idea="Prefer another action at a step of a failed episode where the policy, playing on from it, succeeds.",
        formula=(
            r"r(s_t, a_t) < \gamma_{low}, \quad \max_j r(s_t, a^j_t) > \gamma_{high}",
            r"y(s_t, a^+) = 1, \quad a^+ = \arg\max_j r(s_t, a^j_t)",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi}{\pi_{ref}}(a^+|s_t) - \log\frac{\pi}{\pi_{ref}}(a_t|s_t)\right]\right)",
        ),
        departures=(
            "Expert and process reward model are rules of the world with noise; the paper has large models.",
            "One round. A second one is a run that starts from the policy of the first, which is its reference then.",
            "The policy plays on until the world ends the episode; the code allows ten further steps.",
        ),
        parallel=False,
    )
    Config = Config
    roles = {"data": "makes", "pair_ratios": "maps"}
    trains = frozenset({"dpo"})
    excludes = {"ipo": "it divides by all tokens of a side, those of the world included"}
    worlds = frozenset({"rooms"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.masks = TurnMasks(run.tokenizer)

    @property
    def world(self) -> World:
        assert isinstance(self.run.task, World)
        return self.run.task

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        return ranks.done_by_first(self.make_pairs)

    def make_pairs(self) -> list[Row]:
        """Raises SpecError where there is none."""
        config, spec = self.config, self.run.attempt.spec
        prompts = self.run.task.examples("pairs", config.prompts, spec.seed, spec.task.difficulty)
        asked = [example for example in prompts for _ in range(config.episodes)]
        episodes = continue_episodes(self.run, asked, [()] * len(asked), config.temperature, "cso/episodes")
        succeeded = [self.has_succeeded(example, episode) for example, episode in zip(asked, episodes, strict=True)]
        self.log("failed", 1 - sum(succeeded) / len(succeeded))
        if config.pairs == "episodes":
            made = pair_episodes(asked, episodes, succeeded, config.episodes)
        else:
            failed = [(example, episode) for example, episode, right in zip(asked, episodes, succeeded, strict=True) if not right]
            made = [make_step_row(graft) for graft in self.find_grafts(failed)]
        if config.most and len(made) > config.most:
            made = self.run.rng("cso", "most").sample(made, config.most)
        self.log("pairs", len(made))
        if not made:
            fix = "ask for more prompts or episodes, or begin with a policy that fails less often or not always"
            raise SpecError([Problem("methods.cso", config.pairs, "no pair was found in the policy's episodes", fix)])
        return made

    def has_succeeded(self, example: Example, episode: Replay) -> bool:
        return not episode.rest and (self.world.outcome(example, episode.state)[POLICY]["correct"] or 0.0) > 0.5

    def find_grafts(self, failed: Sequence[tuple[Example, Replay]]) -> list[Graft]:
        """Candidates, and of these, unless nothing is verified, those from which the policy succeeds."""
        found = [graft for example, episode in failed for graft in self.find_candidates(example, episode)]
        steps = sum(len(episode.turns) for _, episode in failed)
        self.log("candidates", len(found) / max(1, steps))
        if self.config.pairs == "verified" and found:
            right = self.verify(found)
            self.log("verified", sum(right) / len(right))
            found = [graft for graft, good in zip(found, right, strict=True) if good]
        best = [graft.action == write_call("do", choose_move(graft.example.data, graft.state or self.world.begin(graft.example))) for graft in found]
        self.log("supervised", len(found) / max(1, steps))
        if best:
            self.log("best_moves", sum(best) / len(best))
        return found

    def find_candidates(self, example: Example, episode: Replay) -> list[Graft]:
        config, found, state = self.config, list[Graft](), self.world.begin(example)
        for place, turn in enumerate(episode.turns):
            best, key = choose_move(example.data, state), (digest_example(example).hex(), state["moves"], state["at"], state["has_key"])
            moves = propose_moves(best, config.proposals, config.expert_noise, self.run.rng("cso/expert", *key))
            texts = [turn.text, *(write_call("do", move) for move in moves)]
            own, *others = [score_move(text == write_call("do", best), config.judge_noise, self.run.rng("cso/judge", *key, text)) for text in texts]
            better = find_better_action(own, others, config.low, config.high)
            if better is not None:
                found.append(Graft(example, episode, place, texts[1 + better]))
            state = turn.step.state
        return found

    def verify(self, grafts: Sequence[Graft]) -> list[bool]:
        """Whether the policy succeeds from each, playing on once from the restored state."""
        begun, steps = list[list[str]](), []
        for graft in grafts:
            state = graft.state if graft.state is not None else self.world.begin(graft.example)
            step = self.world.step(graft.example, state, POLICY, graft.action, self.world.draw_noise(graft.example, graft.turn))
            begun.append([*write_pieces(graft.episode, graft.turn), graft.action, *([step.text] if step.text else [])])
            steps.append(step)
        open_ = [place for place, step in enumerate(steps) if not step.done]
        played = continue_episodes(
            self.run, [grafts[place].example for place in open_], [begun[place] for place in open_], self.config.temperature, "cso/verify"
        )
        right = [(self.world.outcome(graft.example, step.state)[POLICY]["correct"] or 0.0) > 0.5 for graft, step in zip(grafts, steps, strict=True)]
        for place, episode in zip(open_, played, strict=True):
            right[place] = self.has_succeeded(grafts[place].example, episode)
        return right

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        own = self.masks.mask_side(batch.rows, "chosen", batch.chosen_ids, batch.chosen_mask)
        other = self.masks.mask_side(batch.rows, "rejected", batch.rejected_ids, batch.rejected_mask)
        self.log("tokens", torch.stack([own.sum(1), other.sum(1)]).mean())
        return chosen * own, rejected * other

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Steps of failed episodes",
                (
                    Series(f"{name}/candidates", "candidates"),
                    Series(f"{name}/supervised", "in pairs"),
                    Series(f"{name}/verified", "of the candidates, verified", dashed=True),
                ),
                help="Shares, logged at step 1.",
            ),
            Panel("Tokens of an action", (Series(f"{name}/tokens", "that count in a side"),)),
        )


def make_step_row(graft: Graft) -> Row:
    """A pair of two actions after the same beginning."""
    before, turn = "".join(write_pieces(graft.episode, graft.turn)), graft.episode.turns[graft.turn].text
    made: Row = {"prompt": as_rows(graft.example.prompt), OWN: {}}
    for side, action in (("chosen", graft.action), ("rejected", turn)):
        made[side] = to_answer_messages(before + action)
        made[OWN][before + action] = [(len(before), len(before) + len(action))]
    return made


def pair_episodes(examples: Sequence[Example], episodes: Sequence[Replay], succeeded: Sequence[bool], count: int) -> list[Row]:
    """The first success and the first failure of each prompt that has both; ``count`` episodes of a prompt follow each other."""
    made = list[Row]()
    for start in range(0, len(examples), count):
        right = list(succeeded[start : start + count])
        if len(set(right)) < 2:
            continue
        row: Row = {"prompt": as_rows(examples[start].prompt), OWN: {}}
        for side, wanted in (("chosen", True), ("rejected", False)):
            episode = episodes[start + right.index(wanted)]
            text = write_replay(episode)
            row[side] = to_answer_messages(text)
            row[OWN][text] = list_own_spans(episode)
        made.append(row)
    return made
