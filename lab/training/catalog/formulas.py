"""LaTeX of a card → MathML, on the server: the browser needs no script for it."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import lru_cache
from xml.etree import ElementTree

from django.utils.safestring import SafeString, mark_safe
from latex2mathml.converter import convert

log = logging.getLogger(__name__)

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ELEMENTS = frozenset(
    re.findall(r"\w+", "math mrow mi mo mn mtext mspace msub msup msubsup munder mover munderover mfrac msqrt mroot mtable mtr mtd mstyle mpadded")
)
LOOKS = "display stretchy fence form separator accent accentunder movablelimits largeop lspace rspace minsize maxsize mathvariant linethickness"
SIZES = "displaystyle scriptlevel width height depth columnalign columnspacing rowspacing columnlines rowlines columnspan rowspan"
ATTRIBUTES = frozenset(re.findall(r"\w+", f"{LOOKS} {SIZES}"))

ElementTree.register_namespace("", NAMESPACE)


@dataclass(frozen=True)
class Formula:
    """``mathml`` is empty when the LaTeX could not be converted; the page then shows it as it is written."""

    latex: str
    mathml: SafeString


@lru_cache(maxsize=1024)
def convert_formula(latex: str) -> Formula:
    """One display equation."""
    try:
        return Formula(latex, mathml_of(latex))
    except Exception as error:  # of the converter: it raises whatever its parser meets
        log.warning("a formula cannot be converted, %s: %s", type(error).__name__, latex)
        return Formula(latex, SafeString(""))


def mathml_of(latex: str) -> SafeString:
    """Only elements and attributes that draw: the converter copies text as it is, and knows links and styles. Raises when there is anything else."""
    tree = ElementTree.fromstring(convert(latex, display="block"))
    for element in tree.iter():
        name = element.tag.removeprefix(f"{{{NAMESPACE}}}")
        if name not in ELEMENTS:
            raise ValueError(f"the element {name}")
        for attribute in set(element.attrib) - ATTRIBUTES:
            del element.attrib[attribute]
    return mark_safe(ElementTree.tostring(tree, encoding="unicode"))
