"""Builds the optional compiled core; everything else is declared in pyproject.toml.

A machine without a C compiler (or without Cython, when build isolation is off) still gets a working
package: every compiled module has a plain twin and ``cometmq.codec`` picks whichever is there.
"""

import os
from pathlib import Path

from setuptools import Extension, setup


def compiled_modules() -> list[Extension]:
    if os.environ.get("COMETMQ_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extensions = [
        Extension(f"cometmq._fast.{source.stem}", [source.as_posix()], optional=True)
        for source in sorted(Path("src/cometmq/_fast").glob("*.pyx"))
    ]
    directives = {"language_level": "3", "boundscheck": False, "wraparound": False}
    return list(cythonize(extensions, compiler_directives=directives))


setup(ext_modules=compiled_modules())
