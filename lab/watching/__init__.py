"""What runs cost, and what happens without anybody looking."""
