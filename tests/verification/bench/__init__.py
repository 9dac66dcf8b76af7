"""The benchmark suite: ours beside its peers, in one run, each run checked for order and overlap.

A figure from one machine says little; a ratio between two that were measured a minute apart says
more. So every row compares. `docs/performance.md` says how to read it.
"""
