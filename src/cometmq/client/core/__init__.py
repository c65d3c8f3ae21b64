"""What a client decides: which queue, which retry, whose share, which offset.

Nothing here waits, talks or looks at a clock; time comes in as an argument.
"""
