"""The interop kit: programs we did not write, run beside ours.

Here: fetching Apache's servers and the real clients once into a cache, starting and stopping them
with bounds, free ports, and small programs of ours that drive each client. Tests that need any of
these programs live here too. Not here: anything that judges bytes without running such a program
(that is ``tests/golden``).
"""
