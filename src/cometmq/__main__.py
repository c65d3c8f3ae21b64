"""``python -m cometmq`` is the ``cometmq`` program."""

from cometmq.cli import main

main()
