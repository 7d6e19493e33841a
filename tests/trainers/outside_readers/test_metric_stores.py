"""Metrics of TensorBoard, W&B, Trackio and MLflow: written by their own code, read while they grow, damaged and cut anywhere."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.trainers.outside_readers.reading import FIXTURES, events_in, metrics_of, open_spool, read_once, rollouts_of, warnings_of
from trainers.contract.events import AttemptStarted, Message
from trainers.outside.readers.base import SourceError
from trainers.outside.readers.metric_rows import name_metric, read_logged_numbers
from trainers.outside.readers.protobuf_wire import WireError, read_fields

WANDB = FIXTURES / "wandb" / "offline-run-20240101_000000-abcd1234" / "run-abcd1234.wandb"
EVENTS = FIXTURES / "tensorboard" / "events.out.tfevents.1700000000.host"
THIRDS = {step: {"reward": 0.25 * step, "loss": pytest.approx(1 / step)} for step in (1, 2, 3)}


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.mark.parametrize(
    ("source", "name", "policy", "steps", "outcome"),
    [
        ("wandb", "sums-grpo", "Qwen/Qwen3-0.6B", 4, "finished"),
        ("trackio", "sums-grpo", "Qwen/Qwen3-0.6B", 0, None),
        ("mlflow", "sums-grpo", "Qwen/Qwen3-0.6B", 3, "finished"),
        ("mlflow/mlruns", "sums-grpo", "Qwen/Qwen3-0.6B", 3, "finished"),
    ],
)
def test_a_store_gives_its_metrics_its_settings_and_its_end(source: str, name: str, policy: str, steps: int, outcome: str | None, keep: Path) -> None:
    for folder in (keep, keep):  # the second time there is nothing new, and the end is still known
        spool = open_spool(folder, FIXTURES / source)
        spool.take_new(final=True)
        opening = spool.readers[0].describe_opening()
        assert (opening.name, opening.policy, opening.total_steps) == (name, policy, steps)
        assert spool.find_outcome() == outcome
        spool.close()
    found = metrics_of(events_in(keep))
    assert {step: found[step] for step in THIRDS} == THIRDS
    assert found.keys() - THIRDS.keys() <= {4}
    assert sum(isinstance(event, AttemptStarted) for event in events_in(keep)) == 1


def test_tensorboard_scalars_and_the_samples_of_openrlhf(keep: Path) -> None:
    events = read_once(keep, FIXTURES / "tensorboard")
    assert metrics_of(events) == {step: {"reward": 0.25 * step, "policy_loss": pytest.approx(1 / step)} for step in (1, 2, 3)}
    first, _, third = rollouts_of(events)
    assert first.prompt == [Message("system", "You solve sums."), Message("user", "What is 1 + 4?")]
    assert (first.completion, first.reward, third.step, third.reward) == ("<answer>5</answer>", 0.5, 3, 1.5)


@pytest.mark.parametrize("source", [WANDB, EVENTS], ids=["wandb", "tensorboard"])
def test_a_file_cut_anywhere_is_not_yet_and_goes_on_where_it_was_cut(source: Path, tmp_path: Path, keep: Path) -> None:
    whole, folder = source.read_bytes(), tmp_path / "run"
    folder.mkdir()
    spool = None
    for end in [*range(7, len(whole), 97), len(whole)]:
        (folder / source.name).write_bytes(whole[:end])
        spool = spool or open_spool(keep, folder)
        spool.take_new(final=False)
    assert spool is not None
    spool.close()
    assert warnings_of(events_in(keep)) == []
    assert metrics_of(events_in(keep)) == metrics_of(read_once(tmp_path / "at once", source.parent))


@pytest.mark.parametrize("source", [WANDB, EVENTS], ids=["wandb", "tensorboard"])
def test_a_byte_that_changed_is_found_by_its_checksum(source: Path, tmp_path: Path, keep: Path) -> None:
    whole, folder = source.read_bytes(), tmp_path / "run"
    folder.mkdir()
    undamaged = metrics_of(read_once(keep / "undamaged", source.parent))
    for place in range(100, len(whole), 151):
        (folder / source.name).write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        events = read_once(keep / str(place), folder)
        found = metrics_of(events)
        assert warnings_of(events) or found == undamaged, place
        assert all(value == undamaged[step][name] for step, values in found.items() for name, value in values.items()), place


def test_a_long_record_over_several_blocks_and_a_damaged_block(tmp_path: Path, keep: Path) -> None:
    """W&B's framing by hand: three records, the second over four blocks of 32 KiB."""
    import struct
    import zlib

    def piece(kind: int, data: bytes) -> bytes:
        return struct.pack("<IHB", zlib.crc32(data, zlib.crc32(bytes([kind]))), len(data), kind) + data

    def field(number: int, data: bytes) -> bytes:
        size, digits = len(data), b""
        while size > 0x7F:
            digits, size = digits + bytes([size & 0x7F | 0x80]), size >> 7
        return (
            bytes([number << 3 & 0x7F | 2 | (0x80 if number > 15 else 0)])
            + (bytes([number >> 4]) if number > 15 else b"")
            + digits
            + bytes([size])
            + data
        )

    def history(step: int, pad: int = 0) -> bytes:
        items = [(b"_step", str(step)), (b"train/reward", "0.5"), (b"note", '"' + "x" * pad + '"')]
        return field(2, b"".join(field(1, field(2, name) + field(16, text.encode())) for name, text in items))

    data = b":W&B" + b"\xe1\xbe\x00" + piece(1, history(1))
    rest, kind = history(2, 100_000), 2
    while rest:
        room = 32768 - len(data) % 32768 - 7
        kind = 4 if len(rest) <= room else kind
        data += piece(kind, rest[:room])
        rest, kind = rest[room:], 3
    data += piece(1, history(3))
    (tmp_path / "run-a.wandb").write_bytes(data)
    assert metrics_of(read_once(keep, tmp_path)).keys() == {1, 2, 3}
    (tmp_path / "run-a.wandb").write_bytes(data[:40_000] + b"\0" * 7 + data[40_007:])
    events = read_once(keep / "damaged", tmp_path)
    assert metrics_of(events).keys() == {1, 3}
    assert "was left out" in warnings_of(events)[0]


def test_of_several_runs_one_is_named(tmp_path: Path, keep: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        shutil.copy(EVENTS, tmp_path / name)
    with pytest.raises(SourceError, match=r"holds 2 runs \(first, second\): name one with --run"):
        open_spool(keep, tmp_path)
    assert metrics_of(read_once(keep, tmp_path, run="second"))
    store = tmp_path / "sums.db"
    shutil.copy(FIXTURES / "trackio" / "sums.db", store)
    with sqlite3.connect(store) as database:
        database.execute("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('b', 'now', 'other', 1, '{\"loss\": \"NaN\"}')")
        database.execute("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES ('b', 'now', 'other', 2, 'no JSON')")
    with pytest.raises(SourceError, match=r"--run: sums-grpo \(.*\), other \(b\)"):
        open_spool(keep / "b", store)
    events = read_once(keep / "b", store, run="other")
    assert [(one.step, one.nonfinite) for one in events if hasattr(one, "nonfinite")] == [(1, {"loss": "nan"})]
    assert warnings_of(events)[0].startswith("sums.db, row 5 of metrics was left out")


def test_a_store_that_grows_gives_what_is_new(tmp_path: Path, keep: Path) -> None:
    shutil.copytree(FIXTURES / "mlflow" / "mlruns", tmp_path / "mlruns")
    [loss] = (tmp_path / "mlruns").rglob("metrics/train/loss")
    spool = open_spool(keep, tmp_path)
    spool.take_new(final=False)
    with loss.open("a") as file:
        file.write("1795635456170 0.125 4\nnonsense\n1795635456170 nan 5\n17956")
    spool.take_new(final=False)
    spool.close()
    assert metrics_of(events_in(keep))[4] == {"loss": 0.125}
    assert warnings_of(events_in(keep)) == ["metrics/train/loss, line 5 was left out: it is not time, value and step"]


def test_names_and_numbers() -> None:
    assert [name_metric(name) for name in ("train/reward", "eval/reward", "eval_loss", "critic/score/mean", "train/")] == [
        "reward",
        "heldout/reward",
        "heldout/loss",
        "critic/score/mean",
        "train/",
    ]
    logged = {"a": 1, "b": True, "c": "text", "d": {"e": 2.5}, "f": "-Infinity", "g": [1], "h": {"_type": "histogram", "x": 1}, "i": 10**400}
    assert read_logged_numbers(logged) == {"a": 1.0, "b": 1.0, "d.e": 2.5, "f": float("-inf")}


@pytest.mark.parametrize("data", [b"\xff" * 12, b"\x0a\x7f", b"\x09\x01", b"\x0b"])
def test_bytes_that_are_no_message_are_an_error(data: bytes) -> None:
    with pytest.raises(WireError):
        list(read_fields(data))
