"""`groupflow dev`: private servers and a daemon that restarts with each save."""
