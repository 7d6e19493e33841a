"""What people say about rollouts in queues, and how far they agree."""
