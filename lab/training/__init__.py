"""What can be trained, workers, runs, ablations and sweeps."""
