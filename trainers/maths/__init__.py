"""Functions of tensors and numbers that know nothing of a run."""
