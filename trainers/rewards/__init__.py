"""The reward library: one file a function, what composes them into a column (``composition.py``), and the columns of a run (``columns.py``)."""
