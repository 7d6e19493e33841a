from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def dataset_folders(tmp_path: Path, settings: pytest.FixtureRequest) -> None:
    settings.DATASETS_ROOT = tmp_path / "datasets"  # type: ignore[attr-defined]
