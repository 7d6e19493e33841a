"""Methods for multi-turn environments: their rewards read an episode turn by turn, so that they are bound to the worlds they say."""
