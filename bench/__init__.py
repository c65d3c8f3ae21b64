"""Benchmarks: each program compares with a baseline measured in the same run and prints ratios."""
