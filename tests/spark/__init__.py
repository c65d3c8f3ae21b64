"""Tests that run Spark: one session for all of them, servers as processes that can be killed.

Here: whatever needs a JVM with Spark in it. Not here: readers, writers and plans by themselves,
which ``tests/unit/spark`` tries without Spark.
"""
