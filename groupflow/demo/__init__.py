"""`groupflow demo`: real rows for several tenants, imported by two daemons, checked against serial."""
