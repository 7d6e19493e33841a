"""What can be trained, workers, runs and ablations."""
