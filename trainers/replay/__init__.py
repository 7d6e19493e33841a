"""What-if replay: hooks recomputed on stored tensors."""
