"""An episode of its own becomes a side question of another one, so that the rows of both are those of one member. Imports no torch."""

from trainers.rollouts.tree import Episode, Node


def adopt_episode(host: Episode, guest: Episode, about: Node, seat: str) -> None:
    """Moves the nodes of ``guest`` into ``host``, as what ``seat`` was asked aside about the node ``about``; ``guest`` is empty afterwards."""
    first = len(host.nodes)
    for node in guest.nodes:
        node.episode, node.seat = host, seat
        node.number, node.order = node.number + first, node.order + first
        node.parent = None if node.parent is None else node.parent + first
        node.about = None if node.about is None else node.about + first
    guest.root.about = about.number
    host.nodes += guest.nodes
    guest.nodes = []
