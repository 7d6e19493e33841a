"""What the rooms of training have of systems that are neither methods nor recipes, for the map of systems."""

from lab.training.catalog.system_map import PLACES, SystemPlace

# Presets of the room of ablations, which this one may not import.
GRIDS = ("crosslingual-rl", "judge-shelf-life", "how-much-backtrack", "to-backtrack-or-not", "behavior-priming", "prt", "vb-vs-vf")


def register_system_places() -> None:
    for study in GRIDS:
        PLACES.register(study, SystemPlace("Start the grid", "grid-new", f"preset={study}"))
    PLACES.register("guide-dag", SystemPlace("Open the world", "world", argument="causal_graphs"))
    PLACES.register("hhnas-am", SystemPlace("Start a sweep", "sweep-new", "recipe=grpo&sampler=mutations"))
    PLACES.register("mallocmuzero", SystemPlace("Open the world", "world", argument="placement"))
    PLACES.register("paccmann-rl-sarscov2", SystemPlace("Open the world", "world", argument="molecules"))
    PLACES.register("survey-agentic-search-rl", SystemPlace("Filters of search agents", "systems", "idea=search"))
