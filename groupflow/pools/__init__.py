"""Tasks for workers that pull: what they are given over HTTP, and how what they did is settled."""
