"""Writes turns: open nodes of any seat, episode and depth in one batch, and the world's answers to them.

A turn is sampled with the ids that its context holds, as they are. Which ids end it, and what the world hears of it, is as in
``trainers.policies.sampling``, so that an episode of one path has the tokens, numbers and end of a ``Completion``.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from trainers.attempt.telemetry import to_storable_text
from trainers.contract.events import Message
from trainers.policies.biased_sampling import BiasedSampler
from trainers.policies.sampling import Completion, Sampler, Sampling
from trainers.rollouts.seats import TRAINED_POLICY, Player
from trainers.rollouts.task_world import TaskWorld, find_world
from trainers.rollouts.tree import Episode, Finish, Node
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, World

if TYPE_CHECKING:
    from trainers.methods.context import RunContext

UNHEARD = "the world's answer did not fit"


@dataclass
class Engine:
    """``max_tokens``: of a context, the world's words included. ``seeds``: where the randomness of each call comes from; None: torch's global one."""

    run: "RunContext"
    model: Any  # unwrapped policy
    temperature: float
    max_tokens: int
    width: int  # turns sampled at once
    version: int = 0  # updates of the weights so far
    players: dict[str, Player] = field(default_factory=dict)  # seat -> who plays it; the policy plays the others
    seeds: random.Random | None = None

    @cached_property
    def world(self) -> World | TaskWorld:
        return find_world(self.run.task)

    def player(self, seat: str) -> Player:
        return self.players.get(seat, TRAINED_POLICY)

    def find_model(self, player: Player) -> Any:
        if player.who == "policy":
            return self.model
        return self.run.reference if player.who == "snapshot" else self.run.load_other(player.folder)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.run.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.run.tokenizer.encode(to_storable_text(text), add_special_tokens=False)
        return ids

    def open_episode(self, example: Example, prompt: Sequence[Message], group: int = 0, member: int = 0) -> Episode:
        episode = Episode(example, group, member)
        self.ask_in_context(episode, None, POLICY, prompt, state=self.world.begin(example))
        return episode

    def ask_in_context(self, episode: Episode, parent: Node | None, seat: str, messages: Sequence[Message], **more: Any) -> Node:
        """The prompt of a context of its own, below ``parent``."""
        system = self.player(seat).prompt
        asked = [*([Message("system", system)] if system else []), *messages]
        ids = self.run.prompt_ids([asked])[0]
        text = "\n".join(message.content for message in asked)
        return episode.add(parent, "prompt", seat, ids=ids, logprobs=[0.0] * len(ids), entropies=[0.0] * len(ids), text=text, **more)

    def play(
        self,
        at: Sequence[Node],
        *,
        turns: int = 0,
        max_tokens: int = 0,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        pause: int = 0,
        top_k: int = 0,
    ) -> list[Node]:
        """The node that each of ``at`` leads to after ``turns`` turns (0: when its episode ends), in order; one that is over stays where it is.

        A node given twice is played twice. ``stop``: texts after which a turn pauses, open to what is written next; ``pause``: tokens after which.
        """
        heat = self.temperature if temperature is None else temperature
        how = Sampling(heat, max_tokens or self.max_tokens, self.width, top_k=top_k, stop=tuple(stop), pause=pause)
        nodes = list(at)
        going = [place for place, node in enumerate(nodes) if not node.finish]
        for place in going:
            check_open(nodes[place])
        played = 0
        while going and (not turns or played < turns):
            written = self.write_turns([nodes[place] for place in going], how)
            for place, node in zip(going, written, strict=True):
                nodes[place] = node if node.finish else self.end_turn(node, how)
            going = [place for place in going if not nodes[place].finish and nodes[place].by in ("prompt", "world")]
            played += 1
        return nodes

    def write_turns(self, at: Sequence[Node], how: Sampling) -> list[Node]:
        """Below each node the tokens of its seat's next turn; a node whose context is full is ended."""
        made: dict[int, Node] = {}
        sampled: list[int] = []
        targets, players = take_targets(at), [self.player(node.seat) for node in at]
        for place, node in enumerate(at):
            if players[place].rule is not None:
                made[place] = self.write_by_rule(targets[place], players[place])
            elif len(node.episode.context_ids(node)[1]) >= how.max_tokens:
                node.finish, made[place] = "length", node
            else:
                sampled.append(place)
        for player, places in group_by_player(players, sampled):
            for start in range(0, len(places), self.width):
                some = places[start : start + self.width]
                completions = self.sample([at[place] for place in some], self.find_model(player), how)
                for place, completion in zip(some, completions, strict=True):
                    made[place] = self.put(targets[place], completion)
        return [made[place] for place in range(len(at))]

    def sample(self, at: Sequence[Node], model: Any, how: Sampling) -> list[Completion]:
        """The next turn at each node; what a completion adds to its context is in its only turn."""
        biases, source = [node.episode.bias for node in at], (model, self.run.tokenizer, self.run.task, how)
        sampler = Sampler(*source) if all(bias is None for bias in biases) else BiasedSampler(*source, biases)
        made = [Completion(list(prompt), list(rest)) for prompt, rest in (node.episode.context_ids(node) for node in at)]
        with in_evaluation_mode(model), self.own_randomness():
            sampler.sample_turn(made)
        return made

    def own_randomness(self) -> Any:
        from trainers.attempt.evaluate import own_randomness

        return own_randomness(self.seeds.randrange(2**31), self.run.device) if self.seeds is not None else nullcontext()

    def put(self, at: "Target", completion: Completion) -> Node:
        start = completion.turns[0].start
        node = at.open_node()
        node.ids = completion.ids[start:]
        self.run.written_tokens += len(node.ids)
        node.logprobs, node.entropies = list(completion.logprobs), list(completion.entropies)
        node.text, node.version, node.trained = self.decode(node.ids), self.version, self.player(node.seat).in_loss
        return node

    def write_by_rule(self, at: "Target", player: Player) -> Node:
        assert player.rule is not None
        node = at.open_node()
        episode = node.episode
        noise = self.world.draw_noise(episode.example, len(episode.turns(node)) - 1)
        return self.write_given(node, player.rule(episode.example, node.state, noise))

    def write_given(self, node: Node, text: str) -> Node:
        """Makes a blank node one of given words."""
        node.by, node.ids, node.text = "forced", self.encode(text), text
        node.logprobs = node.entropies = [0.0] * len(node.ids)
        node.version = self.version
        return node

    def end_turn(self, node: Node, how: Sampling) -> Node:
        """What a turn that was just written leads to: the world's answer, the next seat's prompt, or the end. A paused turn stays open."""
        sampler = Sampler(self.model, self.run.tokenizer, self.run.task, how)
        ended: Finish = "stop" if node.by == "forced" or node.ids[-1] in sampler.ends else "length"
        if node.episode.is_side(node):
            node.closed, node.finish = True, "stop" if ended == "stop" or sampler.stop_in(node.text) else "length"
            return node
        text = self.decode([id_ for one in node.episode.turn(node) for id_ in one.ids])
        closing = next((stop for stop in self.run.task.stop if stop in text), "")
        if closing:
            return self.answer_turn(node, text[: text.rfind(closing) + len(closing)], "", how.max_tokens)
        if any(stop in node.text for stop in how.stop):
            return node
        if how.pause and ended == "length" and len(node.ids) >= how.pause and len(node.episode.context_ids(node)[1]) < how.max_tokens:
            return node
        return self.answer_turn(node, text, "" if node.by == "forced" else ended, how.max_tokens)

    def answer_turn(self, node: Node, text: str, ended: Finish, max_tokens: int) -> Node:
        """Lets the world hear the turn ``text`` that ends at ``node``. ``ended``: why nothing follows it; empty: the world decides."""
        episode = node.episode
        number = len(episode.turns(node)) - 1
        step = self.world.step(episode.example, node.state, node.seat, text, self.world.draw_noise(episode.example, number))
        node.closed, node.state, node.facts, node.reward = True, step.state, dict(step.facts), step.reward
        if ended or number + 1 >= self.run.task.max_turns or step.done:
            node.finish = ended or ("turns" if number + 1 >= self.run.task.max_turns else "stop")
            return node
        seat = step.to or node.seat
        if step.fresh is not None or seat != node.seat:
            messages = step.fresh if step.fresh is not None else self.world.view(episode.example, step.state, seat)
            return self.ask_in_context(episode, node, seat, messages)
        ids = self.encode(step.text)
        if len(episode.context_ids(node)[1]) + len(ids) >= max_tokens:
            node.finish, node.facts = "length", {**node.facts, "error": UNHEARD}
            return node
        zeros = [0.0] * len(ids)
        return episode.add(node, "world", seat, ids=ids, logprobs=zeros, entropies=list(zeros), text=step.text)

    def score_texts(self, at: Sequence[Node], texts: Sequence[str | Sequence[int]], temperature: float = 1.0) -> list[list[float]]:
        """Log-probabilities of each token of given texts (or ids) after given nodes, nats, by the weights of each node's seat; without gradients.

        Raises ValueError for an episode with a bias, which the weights do not hold.
        """
        if any(node.episode.bias is not None for node in at):
            raise ValueError("texts are scored by the weights alone, and an episode has a bias")
        continuations = [self.encode(text) if isinstance(text, str) else list(text) for text in texts]
        contexts = [[*prompt, *rest] for prompt, rest in (node.episode.context_ids(node) for node in at)]
        made: list[list[float]] = [[] for _ in at]
        for player, places in group_by_player([self.player(node.seat) for node in at], range(len(at))):
            model = self.find_model(player)
            for start in range(0, len(places), self.width):
                some = places[start : start + self.width]
                with torch.no_grad(), in_evaluation_mode(model):
                    found, _ = self.run.logprobs(
                        [contexts[place] for place in some], [continuations[place] for place in some], model=model, temperature=temperature
                    )
                for place, row in zip(some, found.tolist(), strict=True):
                    made[place] = row[: len(continuations[place])]
        return made


@dataclass(frozen=True)
class Target:
    """Where the next turn goes: into a blank branch, or into a new node below ``above``."""

    above: Node | None
    seat: str
    blank: Node | None = None

    def open_node(self) -> Node:
        if self.blank is not None:
            return self.blank
        assert self.above is not None
        return self.above.episode.add(self.above, "policy", self.seat)


def group_by_player(players: Sequence[Player], places: Sequence[int]) -> list[tuple[Player, list[int]]]:
    """Places whose tokens the same weights write, together."""
    found: dict[tuple[str, str], tuple[Player, list[int]]] = {}
    for place in places:
        player = players[place]
        found.setdefault((player.who, player.folder), (player, []))[1].append(place)
    return list(found.values())


def take_targets(at: Sequence[Node]) -> list[Target]:
    """A blank branch is filled once; given again, it gets a sibling."""
    taken, found = set[int](), list[Target]()
    for node in at:
        if node.is_blank and id(node) not in taken:
            taken.add(id(node))
            found.append(Target(None, node.seat, node))
        else:
            found.append(Target(node.episode.parent(node) if node.is_blank else node, node.seat))
    return found


def check_open(node: Node) -> None:
    """Raises ValueError where no turn can be written."""
    if node.finish or node.closed:
        raise ValueError(f"node {node.number} ends a turn or the episode ({node.finish or 'closed'}): play on from what followed it")
    if node.fate != "kept":
        raise ValueError(f"node {node.number} was {node.fate}")


@contextmanager
def in_evaluation_mode(model: Any) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
