"""Settings as options of a command: one option per field, made from the same table as all else."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from cometmq.cli.frame import Frame
from cometmq.codec import java_properties
from cometmq.errors import NotFound, ProtocolError, SettingsError
from cometmq.settings import Bundle, Row, Settings, describe

_FILE_BYTES_MAX = 1024 * 1024
_NO_LETTERS: Mapping[str, str] = {}
_METAVARS: Mapping[Any, str] = {int: "N", float: "N", Path: "PATH", tuple: "LIST"}


def settings_options(
    *classes: type[Settings], letters: Mapping[str, str] = _NO_LETTERS
) -> Callable[[Callable[..., Any]], Any]:
    """Give a command an option for each field; their texts arrive as keyword arguments.

    ``letters`` are further names for some of the options, by flag. Secrets have no option: a
    command line is seen by everyone on the machine.
    """
    rows = [row for part in classes for row in describe(part) if not row.secret]

    def decorate(function: Callable[..., Any]) -> Any:
        for row in reversed(rows):
            names = (letters[row.flag], row.option) if row.flag in letters else (row.option,)
            function = _option(row, names)(function)
        return function

    return decorate


def file_options(file_help: str) -> Callable[[Callable[..., Any]], Any]:
    """Give a command ``-c FILE`` and ``-p``, as ``file`` and ``is_printing``."""

    def decorate(function: Callable[..., Any]) -> Any:
        function = click.option(
            "-p",
            "--print-settings",
            "is_printing",
            is_flag=True,
            help="Print all settings and exit.",
        )(function)
        path = click.Path(path_type=Path)
        return click.option("-c", "--config", "file", type=path, metavar="FILE", help=file_help)(
            function
        )

    return decorate


def properties_of(path: Path | None, *, path_key: str) -> dict[str, str]:
    """What a program's file sets; ``path_key`` is the setting that tells where the file is."""
    given = dict(read_properties(path))
    if path is not None:
        given.setdefault(path_key, str(path.absolute()))
    return given


def read_properties(path: Path | None) -> Mapping[str, str]:
    """A file in RocketMQ's properties format; no path means no settings."""
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise NotFound("file", str(path), "check the path given with -c") from error
    except OSError as error:
        raise SettingsError("-c", f"cannot read '{path}': {error.strerror}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise SettingsError("-c", f"'{path}' is larger than {_FILE_BYTES_MAX} bytes")
    try:
        return java_properties.loads(content)
    except ProtocolError as error:
        raise SettingsError("-c", f"'{path}' is no properties file: {error.fact}") from error


def show_settings(frame: Frame, config: Bundle) -> None:
    """Print every setting of a program with its value; those without effect say why.

    Keys that nobody knows are no settings: of them is said what a start says.
    """
    for unknown in config.review().unknown:
        frame.warn(str(unknown))
    classes = config.classes()
    inert = {key: known for part in classes for key, known in part.accepted_without_effect.items()}
    rows = [
        {
            "key": key,
            "value": value,
            "note": f"no effect: {inert[key].reason}" if key in inert else "",
        }
        for key, value in config.shown().items()
    ]
    frame.show_rows(rows, columns=("key", "value", "note"))


def _option(row: Row, names: tuple[str, ...]) -> Callable[[Callable[..., Any]], Any]:
    return click.option(
        *names,
        row.flag,
        metavar="|".join(row.choices) or _METAVARS.get(row.kind, "TEXT"),
        default=None,
        help=f"{row.doc}  [{row.key}; default: {row.default_text or 'none'}]",
    )
