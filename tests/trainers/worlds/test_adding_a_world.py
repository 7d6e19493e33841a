"""Follows docs/worlds.md in a copy of the repository: its file, its commands, its test."""

import json

from tests.trainers.test_adding_a_method import COMMANDS, NAMED, ROOT, copy_library, follow


def test_the_walk_through_works(tmp_path):
    text = (ROOT / "docs" / "worlds.md").read_text()
    copy = copy_library(tmp_path / "copy")
    for place, code in NAMED.findall(text):
        (copy / place).write_text(code)
    commands = [line for block in COMMANDS.findall(text) for line in block.splitlines()]
    assert [line.split()[2] for line in commands] == ["trainers", "pytest"]
    answers = [follow(line, copy) for line in commands]
    [made] = [task for task in json.loads((copy / "trainers" / "catalog.json").read_text())["tasks"] if task["name"] == "guess"]
    assert (made["tools"][0]["name"], list(made["options"]["properties"]), made["episode_tokens"]) == ("try", ["lies"], 80)
    assert "8 passed" in answers[1]
