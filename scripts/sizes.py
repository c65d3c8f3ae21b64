"""Prints what is larger than we like; exits with 1 for what is larger than we allow."""

import sys

from scripts import tree


def main() -> int:
    large = [module for module in tree.modules() if module.lines > tree.MODULE_LINES_WARN]
    long = [function for function in tree.functions() if function.lines > tree.FUNCTION_LINES_WARN]
    for sized in sorted(large + long):
        print(f"warning: {sized}")
    too_large = [module for module in large if module.lines > tree.MODULE_LINES_MAX]
    too_long = [function for function in long if function.lines > tree.FUNCTION_LINES_MAX]
    for sized in too_large + too_long:
        print(f"error: {sized}; split it", file=sys.stderr)
    return 1 if too_large or too_long else 0


if __name__ == "__main__":
    sys.exit(main())
