"""The page and its HTTP API, in a process of their own. Nothing here writes unasked.

Of these files only `process` and `facts` are the daemon's; all others are imported by
the page's process alone.
"""
