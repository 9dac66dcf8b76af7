"""The rows, a family a file: each has `run(bench)`, which measures its rows one after another."""
