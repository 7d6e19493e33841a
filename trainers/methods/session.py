"""Source of completions for a rollout method: the current policy, including the task's environment, turn by turn where a method wants that.

``complete`` samples whole completions. ``begin`` opens episodes instead, whose turns are nodes of a tree (``trainers/rollouts/``); the moves below
``play`` work on nodes, and ``finish`` makes of leaves what ``rollout`` returns.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trainers.contract.events import Message
from trainers.judges import rewards
from trainers.methods.context import RunContext
from trainers.policies.sampling import Completion, Sampler, Sampling
from trainers.rollouts import moves
from trainers.rollouts.compile import Row, Shared, compile_leaves, compile_rows, complete_row
from trainers.rollouts.engine import Engine
from trainers.rollouts.search import Expand, Keep, Until, Value, sample_steps, search_trees
from trainers.rollouts.search_strategies import Strategy
from trainers.rollouts.search_tree import SearchTree
from trainers.rollouts.seats import Player
from trainers.rollouts.store import Store
from trainers.rollouts.tree import Episode, Node, Place
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, World


@dataclass
class Session:
    """One generation batch to produce. B rows: G adjacent rows for each prompt.

    A method that samples something else in a row (a prompt with a hint, another example of the run) writes it into ``prompts`` and ``examples``;
    the row is scored and shown with these.
    """

    run: RunContext
    model: Any  # unwrapped policy
    examples: list[Example]  # B
    prompts: list[list[Message]]  # B; the methods' ``prompts`` have been applied
    group_size: int
    step: int
    total_steps: int
    temperature: float
    max_tokens: int
    rng: random.Random  # depends on the seed and the step alone
    players: dict[str, Player] = field(default_factory=dict)  # seat -> who plays it; the policy plays the others
    first_row: int = 0  # of this process, where several sample a batch
    seeds: random.Random | None = None  # outside training: where its randomness comes from
    learns: bool = True  # whether a procedure may keep what it finds; not on held-out prompts

    def complete(
        self,
        prompts: Sequence[Sequence[Message]] | None = None,
        examples: Sequence[Example] | None = None,
        *,
        max_tokens: int = 0,
        temperature: float | None = None,
        top_k: int = 0,
        stop: Sequence[str] = (),
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        """One completion for each prompt (default: the whole batch), in order.

        ``prefixes``: token ids that each completion begins with; they are context (mask 0) and count towards ``max_tokens``. ``stop``: texts that end
        the completion, besides the end token. ``top_k``: sample from the k most likely tokens; 0 = all.
        """
        prompts = self.prompts if prompts is None else prompts
        examples = self.examples if examples is None else examples
        heat = self.temperature if temperature is None else temperature
        how = Sampling(heat, max_tokens or self.max_tokens, max(1, len(prompts)), top_k=top_k, stop=tuple(stop))
        sampler = Sampler(self.model, self.run.tokenizer, self.run.task, how)
        made = sampler.complete_batch(examples, self.run.prompt_ids(prompts), prefixes)
        self.run.written_tokens += sum(sum(completion.mask) for completion in made)
        return made

    def score(self, examples: Sequence[Example], completions: Sequence[Completion]) -> list[float]:
        """Weighted sum of the reward functions."""
        return [self.run.score(example, made.text) for example, made in zip(examples, completions, strict=True)]

    def right(self, examples: Sequence[Example], completions: Sequence[Completion]) -> list[bool]:
        return [self.run.right(example, made.text) for example, made in zip(examples, completions, strict=True)]

    # Episodes of turns.

    @cached_property
    def engine(self) -> Engine:
        width = max(len(self.examples), self.run.attempt.sampling_batch)
        return Engine(self.run, self.model, self.temperature, self.max_tokens, width, max(0, self.step - 1), self.players, self.seeds)

    @property
    def store(self) -> Store:
        """Named lists that outlive the batch."""
        return self.run.store

    def begin(self, rows: Sequence[int] | None = None) -> list[Episode]:
        """An open episode for each of ``rows`` (default: the whole batch), at its prompt (``episode.root``)."""
        rows = range(len(self.examples)) if rows is None else rows
        places = [divmod(self.first_row + row, self.group_size) for row in rows]
        return [self.engine.open_episode(self.examples[row], self.prompts[row], *place) for row, place in zip(rows, places, strict=True)]

    def begin_at(self, example: Example, prompt: Sequence[Message] | None = None, *, group: int = 0, member: int = 0) -> Episode:
        """An open episode of any example: one that a seat has written, for instance."""
        return self.engine.open_episode(example, example.prompt if prompt is None else prompt, group, member)

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
        """Where each node leads to after ``turns`` turns (0: when its episode ends), all nodes in one batch; see ``Engine.play``."""
        return self.engine.play(at, turns=turns, max_tokens=max_tokens, temperature=temperature, stop=stop, pause=pause, top_k=top_k)

    def branch(self, at: Node, count: int, why: str = "", *, token: int = 0) -> list[Node]:
        """``count`` open nodes with the same prefix and state; ``token``: from inside ``at``, after so many of its tokens."""
        return moves.branch_node(self.engine, at, count, why, token)

    def cut(self, leaf: Node, at: Place, why: str = "") -> Node:
        """Takes what followed a place out of the episode; returns the node to go on from."""
        return moves.cut_leaf(self.engine, leaf, at, why)

    def force(self, at: Node, text: str, *, train: bool = False, whole: bool = False) -> Node:
        """Given words in the seat's turn; ``whole``: the turn is over with them, and the world answers. Returns where it goes on."""
        return moves.force_text(self.engine, at, text, train, whole)

    def ask(
        self,
        seat: str,
        about: Sequence[Node],
        messages: Sequence[Sequence[Message]],
        count: int = 1,
        *,
        max_tokens: int = 0,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        begin: Sequence[str] = (),
    ) -> list[list[Node]]:
        """``count`` answers of another seat to a question about each node, in a context of its own that the world does not hear.

        ``begin``: given words that the answers to each question begin with.
        """
        engine = self.engine
        return moves.ask_aside(engine, seat, about, messages, count, max_tokens=max_tokens, temperature=temperature, stop=stop, begin=begin)

    def fold(self, at: Node, messages: Sequence[Message]) -> Node:
        """A new context of the same episode, which begins with ``messages``."""
        return moves.fold_context(self.engine, at, messages)

    def likelihood(self, at: Sequence[Node], texts: Sequence[str | Sequence[int]], temperature: float = 1.0) -> list[list[float]]:
        """Log-probability of each token of given texts (or ids) there, nats."""
        return self.engine.score_texts(at, texts, temperature)

    def success(self, at: Sequence[Node], count: int, *, force: str = "", temperature: float | None = None) -> list[float]:
        """Share right of ``count`` continuations of each node; of one whose episode is over, 1 or 0."""
        played = moves.play_on(self.engine, at, count, force, temperature)
        return [sum(self.is_right(leaf) for leaf in leaves) / len(leaves) for leaves in played]

    def search(
        self, roots: Sequence[Node], how: Strategy, expand: Expand | int, value: Value, until: Until | None = None, keep: Keep = "best"
    ) -> list[SearchTree]:
        """A tree of turns from each of ``roots``, all expanded in the same batches; ``SearchTree.best`` is where its best path ends.

        ``expand``: where the steps from each of some nodes lead, or how many turns are sampled from each (at the session's temperature). ``value``:
        what each of some nodes is worth, those where an episode ends included. ``until``: ends the search of a tree at an episode that has ended so.
        ``keep``: ``best`` gives up all but the best path, so that nothing else of it is trained on; ``all`` leaves the whole tree.
        """
        count = expand if isinstance(expand, int) else 0
        grow = (lambda nodes: sample_steps(self.engine, nodes, count)) if isinstance(expand, int) else expand
        return search_trees(roots, how, grow, value, until, keep)

    def outcome(self, leaf: Node, seat: str = POLICY) -> dict[str, float | None]:
        """Score of each reward function of the episode that ends at ``leaf``. A world's are read from its state, which is exact for any tree."""
        episode, task = leaf.episode, self.run.task
        if isinstance(task, World):
            return task.outcome(episode.example, leaf.state)[seat]
        return rewards.score_all(task, self.text_of(leaf), episode.example)

    def total(self, leaf: Node, seat: str = POLICY) -> float:
        """Weighted sum of ``outcome``; functions that are not the world's own do not count."""
        return rewards.weighted_sum(self.outcome(leaf, seat), self.run.attempt.weights) or 0.0

    def is_right(self, leaf: Node) -> bool:
        return (self.outcome(leaf)[next(iter(self.run.task.rewards))] or 0.0) > 0.5

    def text_of(self, leaf: Node) -> str:
        """What its last context holds after the prompt."""
        return self.engine.decode(leaf.episode.context_ids(leaf)[1])

    def compile(self, made: Completion | Episode) -> tuple[Completion, list[Row]]:
        """What is scored and shown of a member, and the further rows that it is trained on in."""
        if isinstance(made, Completion):
            return made, []
        first, *further = compile_rows(made, made.shared)
        completion = complete_row(first, self.engine.decode(first.ids))
        if isinstance(self.run.task, World):
            completion.scores = dict(self.outcome(first.leaf))
        return completion, further

    def finish(self, leaves: Sequence[Node], shared: Shared = "every", notes: Mapping[int, dict[str, Any]] | None = None) -> list[Completion]:
        """One completion for each leaf, for members whose episode is a path, or paths that share a tree. Each leaf has one context.

        ``once``: turns that several leaves share are trained on in the first of them alone. ``notes``: of a leaf, by its place.
        """
        rows = compile_leaves(leaves, shared, keep_all=True)
        if len(rows) != len(leaves):
            raise ValueError("a leaf with several contexts is no single completion: return its episode")
        made = [complete_row(row, self.engine.decode(row.ids)) for row in rows]
        for place, note in (notes or {}).items():
            made[place].notes.update(note)
        return made
