"""TRL's trainers as this library runs them. Nothing else knows TRL's private names; TRL is pinned exactly and tests compare with its own trainers."""
