"""Where dataset tools are applied, for the map of systems."""

from lab.training.catalog.system_map import PLACES, SystemPlace
from trainers.contract.dataset_tools.registry import TOOLS


def register_tool_places() -> None:
    """Of tools whose study has no place yet."""
    for name in TOOLS.keys() - PLACES.keys():
        PLACES.register(name, SystemPlace("Choose a dataset", "datasets"))
