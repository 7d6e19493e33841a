"""The catalogue as the lab reads it."""

import json
import os
from pathlib import Path

import pytest
from pytest_django import Settings

from lab.training.catalog.catalog import BUILT_IN, CatalogError, load_catalog


def test_it_reads_what_the_trainers_committed() -> None:
    found = load_catalog()
    assert found.recipe("demo")["title"]
    assert len(found.recipe("demo")["stages"]) == 3
    assert found.task("mini_gsm")["rewards"][0]["name"] == "correct"
    assert {"sft", "grpo", "dpo"} <= set(found.trainers)
    assert "num_generations" in found.hyperparameters("grpo")
    assert "num_generations" not in found.hyperparameters("sft")


@pytest.mark.parametrize(("what", "name"), [("recipe", "gppo"), ("task", "mini"), ("trainer", "ppo"), ("policy", "pickle")])
def test_an_unknown_name_lists_what_there_is(what: str, name: str) -> None:
    with pytest.raises(CatalogError) as caught:
        getattr(load_catalog(), what)(name)
    assert str(caught.value).startswith(f"there is no {what} named '{name}'; there are: ")
    assert {"recipe": "grpo", "task": "mini_gsm", "trainer": "sft", "policy": "tiny"}[what] in str(caught.value)


def test_the_installations_own_catalogue_comes_first_and_is_read_again_when_it_changes(settings: Settings, tmp_path: Path) -> None:
    settings.HOME = tmp_path
    data = json.loads(BUILT_IN.read_text())
    own = tmp_path / "catalog.json"
    for number, name in enumerate(("first", "second")):
        data["tasks"] = [{"name": name}]
        own.write_text(json.dumps(data))
        os.utime(own, ns=(number, number))
        assert [task["name"] for task in load_catalog().tasks] == [name]
    own.unlink()
    assert load_catalog().task("mini_gsm")


@pytest.mark.parametrize("text", ["", "{", "{}", "[]"])
def test_a_broken_catalogue_says_which_file_and_what_to_do(settings: Settings, tmp_path: Path, text: str) -> None:
    settings.HOME = tmp_path
    (tmp_path / "catalog.json").write_text(text)
    with pytest.raises(CatalogError, match=r"catalog\.json cannot be read .* make catalog"):
        load_catalog()
