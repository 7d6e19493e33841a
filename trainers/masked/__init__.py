"""Masked diffusion policies: a text is written by unmasking positions in any order, not from left to right."""
