"""Datasets, the loop from labels back to training, and projects."""
