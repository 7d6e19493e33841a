"""Rollouts of several turns as trees: nodes are turns, moves sample, branch, cut and search, and the end of it all is rows to train on."""
