"""What the lab and the trainers share, free of torch: specs and what is wrong with them, stacking, events, the spool, stored arrays."""
