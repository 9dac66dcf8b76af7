"""The nemesis: real daemons under load, everything broken on purpose, and every promise checked."""
