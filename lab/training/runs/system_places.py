"""What the rooms of training have of systems that are neither methods nor recipes, for the map of systems."""

from lab.training.catalog.system_map import PLACES, SystemPlace


def register_system_places() -> None:
    for study in ("crosslingual-rl", "judge-shelf-life"):
        PLACES.register(study, SystemPlace("Start the grid", "grid-new", f"preset={study}"))
    PLACES.register("survey-agentic-search-rl", SystemPlace("Filters of search agents", "systems", "idea=search"))
