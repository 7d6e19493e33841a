"""Who scores a completion: reward functions, people, models behind an endpoint."""
