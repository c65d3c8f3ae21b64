"""Writes the commands' help into docs/reference/cli.md: ``python -m scripts.cli_reference``.

Only what stands between the two marks is replaced; the rest of the page is written by hand.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from cometmq.cli.app import app

PAGE = Path(__file__).parents[1] / "docs/reference/cli.md"
BEGIN = "<!-- made by python -m scripts.cli_reference: begin -->\n"
END = "<!-- made by python -m scripts.cli_reference: end -->\n"
WIDTH = 90


def updated(page: str) -> str:
    """``page`` with the help of every command as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    sections = (_section(context, command) for context, command in commands(app))
    return before + BEGIN + "".join(sections) + "\n" + END + after


def commands(
    command: click.Command, name: str = "cometmq", parent: click.Context | None = None
) -> Iterator[tuple[click.Context, click.Command]]:
    """``command`` and every command below it, each with a context that can format its help."""
    width = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, parent, name, **{**command.context_settings, **width})
    yield context, command
    if isinstance(command, click.Group):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            assert child is not None, child_name
            yield from commands(child, child_name, context)


def _section(context: click.Context, command: click.Command) -> str:
    level = "##" if context.parent is None else "###"
    help_text = command.get_help(context)
    return f"\n{level} `{context.command_path}`\n\n```text\n{help_text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE}")
