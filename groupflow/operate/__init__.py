"""What operators ask of the store, and what they do there; the path never needs it.

All that asks Redis raises `StoreUnavailable` where it doesn't answer.
"""
