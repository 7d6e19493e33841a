"""Names are given once, and who asks for one that is not there is told what is."""

from dataclasses import dataclass

import pytest

from lab.lib.registry import NameInUse, Registry, UnknownName


@dataclass(frozen=True)
class Colour:
    name: str
    code: str = ""


def test_things_are_found_by_name_in_the_order_they_came() -> None:
    colours: Registry[Colour] = Registry.of("colour", [Colour("red"), Colour("blue")])
    colours.register("green", Colour("green"))
    assert list(colours) == ["red", "blue", "green"]
    assert [one.name for one in colours.values()] == ["red", "blue", "green"]
    assert "red" in colours
    assert colours.get("pink") is None


def test_a_name_is_given_once_and_the_message_names_both() -> None:
    red = Colour("red")
    colours: Registry[Colour] = Registry.of("colour", [red])
    colours.register("red", red)
    with pytest.raises(NameInUse, match=r"two colours are called 'red': .*code=''.* and .*code='f00'"):
        colours.register("red", Colour("red", "f00"))
    assert list(colours.values()) == [red]


@pytest.mark.parametrize(("asked", "words"), [("gren", "did you mean green?"), ("xyz", "there are red, green"), ("x" * 1000, "there are red, green")])
def test_an_unknown_name_is_answered_with_near_ones(asked: str, words: str) -> None:
    colours = Registry.of("colour", [Colour("red"), Colour("green")])
    with pytest.raises(UnknownName) as error:
        colours[asked]
    assert str(error.value) == f"there is no colour {asked[:80]!r}: {words}"
