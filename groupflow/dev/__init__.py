"""`groupflow dev`: private servers and a daemon that starts anew with each save."""
