"""``{% load annotation_summaries %}``: what people said about the rollouts of a list, for templates of rooms that know nothing of annotations."""

from collections.abc import Iterable
from typing import Any

from django import template

from lab.rollouts.annotations.summary import Summary, summarize_annotations

register = template.Library()


@register.simple_tag
def annotation_summaries(groups: Iterable[Any]) -> dict[int, Summary]:
    """By id of each rollout on the cards of the feed's groups, in the queries of one ``summaries``."""
    return summarize_annotations(card.rollout.pk for group in groups for card in group.cards)
