"""`groupflow demo`: two daemons import real rows, as a serial import would, but faster."""
