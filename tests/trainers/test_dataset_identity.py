"""What a run was trained on can be checked against the dataset, and a file that changed since it was frozen is not trained on."""

import hashlib
import json
import re

import pytest

from tests.trainers.conftest import events_in, make_spec
from trainers.attempt import train
from trainers.attempt.code_version import find_code_version
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.events import AttemptStarted, Inputs
from trainers.data import identity


def answer(text):
    return [{"role": "assistant", "content": text}]


def rows_of(count=16):
    return [
        {"prompt": [{"role": "user", "content": f"{i}+1?"}], "chosen": answer(f"{i + 1}"), "rejected": answer(f"{i + 2} é"), "weight": 0.5}
        for i in range(count)
    ]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def canonical(row):
    """As documented, not through the code under test."""
    return hashlib.sha256(json.dumps(row, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()


def of_file(folder, path, sha256, trainer="dpo"):
    return make_spec(folder, trainer, training__max_steps=2, dataset={"path": str(path), "sha256": sha256})


@pytest.mark.feature(82)
@pytest.mark.training
def test_the_run_folder_says_which_rows_were_trained_on(tmp_path):
    path, rows = tmp_path / "train.jsonl", rows_of()
    digest = write(path, rows)
    assert train.run_training(of_file(tmp_path / "run", path, digest), tmp_path / "run") == train.FINISHED
    told = json.loads((tmp_path / "run" / identity.FILE).read_bytes())
    assert told == {"path": str(path), "sha256": digest, "rows": len(rows), "digests": [canonical(row) for row in rows]}
    [start, known] = [event for event in events_in(tmp_path / "run") if isinstance(event, AttemptStarted | Inputs)]
    lines = "".join(f"{row}\n" for row in told["digests"])
    assert (known.source, known.rows, known.sha256) == ("dataset", len(rows), hashlib.sha256(lines.encode()).hexdigest())
    assert re.fullmatch("[0-9a-f]{64}", known.weights)
    assert start.environment.code == find_code_version()
    assert {package.name: package.version for package in start.environment.packages}["trl"] == start.versions["trl"]
    assert start.environment.hardware.system


def test_a_changed_file_is_refused_before_anything_loads(tmp_path, capfd):
    path = tmp_path / "train.jsonl"
    digest = write(path, rows_of())
    spec = of_file(tmp_path / "run", path, digest)
    assert run_preflight_checks(spec).ok
    with path.open("a") as file:
        file.write("\n")  # not even a row
    found = run_preflight_checks(spec).problems
    assert [problem.field for problem in found] == ["dataset.sha256"]
    assert "has changed since it was frozen" in found[0].message
    assert run_preflight_checks(spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"sha256": None})})).ok


@pytest.mark.training
def test_the_trainer_refuses_it_too(tmp_path, capfd):
    path = tmp_path / "train.jsonl"
    digest = write(path, rows_of())
    write(path, rows_of(15))
    assert train.run_training(of_file(tmp_path / "run", path, digest), tmp_path / "run") == train.REFUSED
    assert "has changed since it was frozen" in capfd.readouterr().err
    assert not (tmp_path / "run" / identity.FILE).exists()


def test_columns_that_are_not_trained_on_do_not_count():
    row = rows_of(1)[0]
    assert identity.row_digest(row | {"votes": object()}, "dpo") == identity.row_digest(row, "dpo") != identity.row_digest(row | {"weight": 1}, "dpo")
    assert identity.row_digest(row | {"weight": 1}, "reward") == identity.row_digest(row, "reward")


def test_a_digest_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"dataset\.sha256"):
        of_file(tmp_path, tmp_path / "train.jsonl", "ABC")
