"""The moves on the tree beside ``Engine.play``: branch, cut, force, ask, fold and the value of playing on."""

from collections.abc import Sequence

from trainers.contract.events import Message
from trainers.rollouts.engine import Engine, check_open
from trainers.rollouts.tree import Node, Place


def branch_node(engine: Engine, at: Node, count: int, why: str = "", token: int = 0) -> list[Node]:
    """``count`` blank branches with the same prefix and state, to be played with new randomness.

    ``token``: after so many tokens of ``at``, which is split there; what else was written from there on stays as another branch.
    """
    above = split_at(engine, at, token) if token else at
    check_open(above)
    return [above.episode.add(above, "policy", above.seat, why=why) for _ in range(count)]


def cut_leaf(engine: Engine, leaf: Node, at: Place, why: str = "") -> Node:
    """The node to go on from after the episode of ``leaf`` was cut at a place of one of its turns; what followed stays in the tree as cut."""
    episode = leaf.episode
    nodes, count = find_place(engine, leaf, at)
    for node in nodes:
        if count <= len(node.ids):
            break
        count -= len(node.ids)
    if count == len(node.ids):
        below = node
        check_place(below)
    elif count:
        below = split_at(engine, node, count)
    else:
        above = episode.parent(node)
        assert above is not None  # a turn has a prompt above it
        below = above
    episode.give_up(leaf, "cut", why, below)
    return below


def check_place(node: Node) -> None:
    if node.closed:
        raise ValueError(f"nothing of the turn that ends at node {node.number} is cut: name an earlier place, or the next turn")


def find_place(engine: Engine, leaf: Node, at: Place) -> tuple[list[Node], int]:
    """The nodes of the turn, and how many of its tokens are kept. Raises IndexError for a turn that is not there."""
    nodes = leaf.episode.turns(leaf)[at.turn]
    ids = [id_ for node in nodes for id_ in node.ids]
    count = at.token
    if at.characters:
        lengths = engine.run.attempt.pieces.lengths(ids, engine.decode(ids))
        seen = 0
        for length in lengths:
            if seen + length > at.characters:
                break
            seen += length
            count += 1
    return nodes, count


def split_at(engine: Engine, node: Node, token: int) -> Node:
    if node.by != "policy":
        raise ValueError(f"node {node.number} was written by {node.by}, not sampled: branch before or after it")
    return node.episode.split(node, token, engine.decode(node.ids[:token]), engine.decode(node.ids[token:]))


def force_text(engine: Engine, at: Node, text: str, train: bool = False, whole: bool = False) -> Node:
    """Given words as (a part of) the seat's turn; returns where it goes on.

    With ``whole``, or where the text ends in one of the task's stop texts, the turn is over and the world answers; else the policy writes on.
    ``train``: whether the words are in the loss. Their log-probabilities under the policy are not known here (0).
    """
    check_open(at)
    node = at if at.is_blank else at.episode.add(at, "policy", at.seat)
    engine.write_given(node, text)
    node.trained = train and engine.player(node.seat).in_loss
    stop = tuple(engine.run.task.stop)
    closes = bool(stop) and text.endswith(stop)
    if not (whole or closes):
        return node
    if whole and not closes:
        end = engine.run.tokenizer.eos_token_id
        node.ids = [*node.ids, end]
        node.logprobs = node.entropies = [0.0] * len(node.ids)
    turn = engine.decode([id_ for one in node.episode.turn(node) for id_ in one.ids])
    return engine.answer_turn(node, turn, "" if closes else "stop", engine.max_tokens)


def fold_context(engine: Engine, at: Node, messages: Sequence[Message]) -> Node:
    """A new context of the same episode: the next turn is asked with ``messages`` alone. Raises ValueError where they leave no room for it."""
    if at.finish or at.fate != "kept":
        raise ValueError(f"node {at.number} is over ({at.finish or at.fate})")
    return engine.ask_in_context(at.episode, at, at.seat, messages)


def ask_aside(
    engine: Engine,
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
    """``count`` answers of ``seat`` to a question about each node, each question in a context of its own; the world does not hear them.

    ``begin``: given words that the answers to each question begin with, in a node of their own above the answer. An answer that they leave no room
    for is the node of these words.
    """
    asked = []
    for node, question in zip(about, messages, strict=True):
        asked.append(engine.ask_in_context(node.episode, None, seat, question, state=node.state, about=node.number))
    places = [node for node in asked for _ in range(count)]
    if begin:
        words = [text for text in begin for _ in range(count)]
        places = [force_text(engine, node, text) for node, text in zip(places, words, strict=True)]
    answers = engine.play(places, turns=1, max_tokens=max_tokens, temperature=temperature, stop=stop)
    return [answers[start : start + count] for start in range(0, len(answers), count)]


def play_on(engine: Engine, at: Sequence[Node], count: int, force: str = "", temperature: float | None = None) -> list[list[Node]]:
    """The leaves of ``count`` continuations of each node, which are looked at and then given up: nothing of them is trained on.

    ``force``: words that each continuation begins with. Of a node whose episode is over, the node itself.
    """
    places = [node for node in at if not node.finish]
    started = [one for node in places for one in branch_node(engine, node, count, "value")]
    begun = [force_text(engine, node, force) for node in started] if force else started
    leaves = engine.play(begun, temperature=temperature)
    for first, leaf in zip(started, leaves, strict=True):
        above = leaf.episode.parent(first)
        assert above is not None
        leaf.episode.give_up(leaf, "abandoned", "value", above)
    played = iter(leaves)
    return [[node] if node.finish else [next(played) for _ in range(count)] for node in at]
