"""Pytest plugin: the longest files come first, so that processes which share the tests end together; ``--quick`` leaves out what takes long.

Measured on 23, 25 and 26 November 2026 (docs/performance.md), longest first: above about 5 seconds of processor time, then above 2.5. A file that is
in neither list is taken for a short one: add one that becomes long.
"""

from pathlib import Path

import pytest

LONGEST = (
    "lab/test_soak.py",
    "lab/test_commands.py",  # the first three are chosen so that one process migrates a database while the others need none
    "trainers/test_equality.py",
    "trainers/methods/test_stack_order.py",
    "browser/test_hostile.py",
    "security/test_numbers.py",
    "lab/api/test_schema.py",
    "browser/test_first_day.py",
    "lab/test_tenancy.py",
    "browser/test_tasks.py",
    "trainers/test_resume.py",
    "security/test_matrix.py",
    "lab/embeddings/test_clusters.py",
    "browser/test_loop.py",
    "trainers/test_adding_a_method.py",
    "security/test_matrix_api.py",
    "lab/api/test_strictness.py",
    "security/test_incidents_files.py",
    "browser/test_admin_day.py",
    "lab/test_compose.py",
    "lab/supervisor/test_outages.py",
    "lab/supervisor/test_real_trainer.py",
    "trainers/methods/test_pairs_resume.py",
    "trainers/test_grpo.py",
    "lab/playground/test_playground.py",
    "lab/supervisor/test_supervise.py",
    "lab/supervisor/test_real_methods.py",
    "lab/supervisor/test_trainer_process.py",
    "lab/test_availability.py",
    "lab/test_embedded.py",
    "lab/test_replay.py",
    "lab/branches/test_branches.py",
    "lab/embeddings/test_similar.py",
    "security/test_incidents_queries.py",
    "lab/test_launching.py",
    "lab/test_launch_methods.py",
    "security/test_bombs.py",
    "security/test_garbage.py",
    "security/test_matrix_sockets.py",
    "lab/labels/test_verbs.py",
    "lab/test_annotations.py",
    "lab/loop/test_training.py",
    "lab/loop/test_human_reward.py",
    "lab/loop/test_recall.py",
    "lab/people/test_hostile.py",
    "lab/outside/test_watching.py",
    "lab/test_comparison.py",
    "lab/test_saved_recipes.py",
    "lab/browse/test_views.py",
    "lab/browse/test_words.py",
    "lab/test_methods_pages.py",
    "lab/operations/test_admin.py",
    "lab/labels/test_concurrency.py",
    "lab/labels/test_queues.py",
    "trainers/test_tasks.py",
    "trainers/test_effects.py",
    "trainers/test_tasks_registry.py",
    "trainers/test_sandbox_attacks.py",
    "trainers/rewards/test_shadows.py",
    "trainers/test_cli.py",
    "security/test_incidents_code.py",
    "security/test_headers.py",
    "security/test_front.py",
    "security/test_child_processes.py",
    "security/test_incidents_access.py",
)
LONG = (
    "lab/test_static_names.py",
    "lab/labels/test_strategies.py",
    "security/test_incidents_text.py",
    "security/test_secrets.py",
    "lab/supervisor/test_ingest.py",
    "lab/test_launching_from_runs.py",
    "lab/test_consumers.py",
    "lab/test_audit_chain.py",
    "lab/quality/test_pages.py",
    "lab/test_ablations.py",
    "lab/test_sweeps.py",
    "lab/test_rollouts_page.py",
    "lab/test_catalog_publishing.py",
    "lab/test_audit_acts.py",
    "lab/api/test_experiments.py",
    "lab/accounts/test_throttling.py",
    "lab/people/test_inviting.py",
    "lab/test_run_page.py",
    "lab/test_listing.py",
    "lab/labels/test_settling.py",
    "lab/policies/test_pages.py",
    "lab/test_atlas.py",
    "lab/loop/test_training_starts.py",
    "lab/alerts/test_pages.py",
    "lab/test_across_teams.py",
    "lab/datasets/test_dataset_pages.py",
    "lab/reading/test_groups.py",
    "trainers/methods/test_accumulation.py",
    "trainers/test_policies.py",
)
HERE = Path(__file__).parent
PLACES = {HERE / name: place for place, name in enumerate((*LONGEST, *LONG))}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out trainings, the browser and the long files")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("quick") and (collection_path in PLACES or collection_path == HERE / "browser"):
        return True
    return None


def shares_folders(config: pytest.Config) -> bool:
    """Whether this is one of several processes that run the same folders."""
    return hasattr(config, "workerinput") and all(Path(argument).is_dir() for argument in config.args)


def pytest_configure(config: pytest.Config) -> None:
    """Each process imports another folder first, so that in a fresh clone one compiles what the others find compiled."""
    if shares_folders(config):
        first = int(config.workerinput["workerid"].removeprefix("gw")) % len(config.args)  # type: ignore[attr-defined]
        config.args = [*config.args[first:], *config.args[:first]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if shares_folders(config):
        items.sort(key=lambda item: item.path)  # they must agree on the order
    items.sort(key=lambda item: PLACES.get(item.path, len(PLACES)))
    if config.getoption("quick"):
        left_out = [item for item in items if item.get_closest_marker("training")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("training")]
