"""Where dataset tools are applied, for the map of systems."""

from lab.training.catalog.system_map import PLACES, SystemPlace
from trainers.contract.dataset_tools.registry import TOOLS


def register_tool_places() -> None:
    for name in TOOLS:
        if name not in PLACES:  # a study of which a room further left has a page of its own
            PLACES.register(name, SystemPlace("Choose a dataset", "datasets"))
