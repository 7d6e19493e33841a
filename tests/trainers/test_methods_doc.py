"""``python -m trainers methods``: the table, one method in full, and docs/methods.md as it is committed."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainers.__main__ import main
from trainers.catalog import methods_page as methods_doc
from trainers.catalog.entries import built_in_entries

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = built_in_entries()


def test_the_committed_document_is_current() -> None:
    assert (ROOT / "docs/methods.md").read_text() == methods_doc.render_methods_markdown(list(ENTRIES.values())), "run: make catalog"


def test_the_table_has_a_line_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", *ENTRIES]
    assert lines[1:] == [line.rstrip() for line in lines[1:]]
    column = lines[0].index("TITLE")
    for line, entry in zip(lines[1:], ENTRIES.values(), strict=True):
        assert entry["title"].startswith(line[column:])


@pytest.mark.parametrize("name", ENTRIES)
def test_a_method_is_shown_in_full(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", name]) == 0
    text = capsys.readouterr().out
    entry = ENTRIES[name]
    for part in (entry["title"], entry["idea"], entry["summary"], *entry["formula"], *entry["hooks"], *entry["parameters"].get("properties", {})):
        assert part in text


def test_a_wrong_name_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "rs-gpro"]) == 2
    assert "did you mean rs-grpo?" in capsys.readouterr().err


def test_it_needs_no_torch() -> None:
    code = "import sys; from trainers.__main__ import main; main(['methods']); main(['methods', 'rs-grpo']); main(['methods', '--markdown'])"
    done = subprocess.run([sys.executable, "-c", f"{code}; sys.exit('torch' in sys.modules)"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_method_has_its_place_in_the_document() -> None:
    text = methods_doc.render_methods_markdown(list(ENTRIES.values()))
    assert {entry["group"] for entry in ENTRIES.values()} <= set(methods_doc.GROUPS)
    for name, entry in ENTRIES.items():
        assert text.count(f"\n### {name}\n") == 1
        assert f"](#{methods_doc.make_heading_anchor(entry)})" in text
    assert methods_doc.make_heading_anchor({"name": "kimi-k2.5"}) == "kimi-k25"


def test_a_bar_in_a_text_does_not_end_a_cell() -> None:
    assert methods_doc.escape_table_cell("P(a|b)\n holds") == "P(a\\|b) holds"
