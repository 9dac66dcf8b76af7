"""Daemons that die at named points, and whether all that was published still ends as it should."""
