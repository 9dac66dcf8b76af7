"""What operators ask of the store, and what they do there; the path never needs it."""
