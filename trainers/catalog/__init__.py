"""The catalogue of trainers, tasks, recipes and methods as data and as text."""
