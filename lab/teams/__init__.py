"""People, teams, what they may do and what they did."""
