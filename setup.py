"""Builds the optional compiled core; everything else is declared in pyproject.toml.

A machine without a C compiler (or without Cython, when build isolation is off) still gets a working
package: every compiled module has a plain twin and ``cometmq.codec.core`` picks whichever is there.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildIfPossible(build_ext):
    """A compiler that is missing or fails costs speed, never the installation.

    ``Extension(optional=True)`` alone does not do it: a compiler that does not exist raises
    FileNotFoundError, which setuptools lets through.
    """

    def initialize_options(self) -> None:
        super().initialize_options()
        self.failed: set[str] = set()

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = True  # as many at a time as there are processors

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # whatever a tool chain can do wrong
            self.failed.add(ext.name)
            print(f"warning: {ext.name} was not compiled ({error}); plain Python is used instead")

    def copy_extensions_to_source(self) -> None:
        self.extensions = [ext for ext in self.extensions if ext.name not in self.failed]
        super().copy_extensions_to_source()


def compiled_modules() -> list[Extension]:
    if os.environ.get("COMETMQ_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        print("warning: Cython is not installed; plain Python is used instead", file=sys.stderr)
        return []
    extensions = [
        Extension(
            f"cometmq._fast.{source.stem}",
            [source.as_posix()],
            include_dirs=["src/cometmq/_fast"],
            depends=["src/cometmq/_fast/crc32.h"],
            optional=True,
        )
        for source in sorted(Path("src/cometmq/_fast").glob("*.pyx"))
    ]
    directives = {"language_level": "3", "boundscheck": False, "wraparound": False}
    return list(cythonize(extensions, compiler_directives=directives))


setup(ext_modules=compiled_modules(), cmdclass={"build_ext": BuildIfPossible})
