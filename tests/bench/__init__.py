"""Benchmarks on a private Redis: figures to compare within one run, never asserted."""
