"""What ours is measured beside. Each peer runs in a process of its own, set up as it likes best.

Such a process gets one JSON object as its argument: the load, the workers, its server, where to
write its records, and for how many seconds it may work. It fills its queue, works, and writes.
"""
