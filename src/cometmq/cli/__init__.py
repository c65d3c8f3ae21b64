"""The command line: parses, asks the layers below, prints.

``frame`` holds what all commands share (options, output, errors, logs), ``app`` lists the commands,
``commands/`` has one module for each. Nothing here computes: what a command finds out, a library
call could find out too.
"""


def main() -> None:
    """The ``cometmq`` program; ends the process with one of the documented exit codes."""
    from cometmq.cli.app import app

    app.main(prog_name="cometmq")
