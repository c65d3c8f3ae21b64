"""One target under atheris: ``python -m fuzz.child TARGET [libFuzzer's arguments]``.

A process of its own because libFuzzer ends the process, and because the decoders must not have been
imported before: instrumenting happens while they are.
"""

import sys

import atheris


def main() -> None:
    program, name, *arguments = sys.argv
    # The compiled core is exercised but not seen; its plain twin runs on the same bytes and is.
    with atheris.instrument_imports(include=["cometmq"]):
        from fuzz.targets import TARGETS
    atheris.Setup([program, *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
