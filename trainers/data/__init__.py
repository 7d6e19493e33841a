"""What is trained on: rows of a dataset and preference pairs."""
