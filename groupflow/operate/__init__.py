"""What operators read and change in the store; the path never needs it.

All calls to Redis raise `StoreUnavailable` if it doesn't answer.
"""
