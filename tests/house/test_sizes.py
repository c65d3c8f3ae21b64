"""A module is one noun and a function fits on a screen."""

from scripts import tree


def test_no_module_is_longer_than_800_lines() -> None:
    too_large = [str(m) for m in tree.modules() if m.lines > tree.MODULE_LINES_MAX]

    assert too_large == []


def test_no_function_is_longer_than_70_lines() -> None:
    too_long = [str(f) for f in tree.functions() if f.lines > tree.FUNCTION_LINES_MAX]

    assert too_long == []


def test_functions_of_both_languages_are_measured() -> None:
    """The gate is only worth something while it sees what it measures."""
    seen = {(f.path, f.name) for f in tree.functions()}

    assert ("scripts/tree.py", "functions") in seen
    assert ("src/cometmq/_fast/records.pyx", "encode_into") in seen
    assert ("src/cometmq/_fast/records.pyx", "scan_entries") in seen


def test_at_most_five_modules_are_compiled() -> None:
    """The compiled core stays small (ADRs 5 and 15); what need not be compiled is not."""
    compiled = sorted(path.name for path in (tree.ROOT / "src/cometmq/_fast").glob("*.pyx"))

    assert len(compiled) <= 5, compiled
