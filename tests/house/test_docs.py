"""Documents tell the truth: links lead somewhere, examples run, what is named exists or is planned.

What a block of code is for is said by its language: ``python`` and ``pycon`` are run, ``console``
is run and its output compared, ``sh`` is for people to type (its commands must exist), ``text`` and
the rest are shown only.
"""

import doctest
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from cometmq.cli.app import app
from scripts import tree

ROOT = tree.ROOT
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "cometmq"
PAGES = sorted(path for path in tree.tracked_files() if path.suffix == ".md")
SITE_PAGES = [page for page in PAGES if page.is_relative_to(DOCS)]
MAPS = [
    ROOT / "ARCHITECTURE.md",
    *(DOCS / "internals").glob("*.md"),
    DOCS / "reference" / "compatibility.md",
]
"""Pages that tell where things live."""

ADR_SECTIONS = ["Context", "Decision", "Consequences", "What would make us revisit it"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LAYERS = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
ROOMS = {name for layer in LAYERS for name in re.findall(r"\w+", layer)} | {"aio"}

_FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^ *\2 *$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
_MODULE = re.compile(r"(?:cometmq\.)?([a-z_]+)((?:\.\w+)*)")
_COMETMQ = re.compile(r"(?:^|[|;&] *)(?:\S*/)?cometmq +([^|;&#]*)")
_WORD = re.compile(r"[a-z][a-z-]*")


def name_of(page: Path) -> str:
    return tree.relative(page)


def read(page: str) -> str:
    return (ROOT / page).read_text()


class Block(NamedTuple):
    """A fenced block of code; ``line`` is where its fence opens."""

    language: str
    line: int
    text: str


def blocks_in(text: str) -> list[Block]:
    return [
        Block(found[3], text.count("\n", 0, found.start()) + 1, found[4])
        for found in _FENCE.finditer(text)
    ]


def prose_of(text: str) -> str:
    return _FENCE.sub("", text)


class Unit(NamedTuple):
    """A row of a table or a paragraph; it is planned when it, or a heading above it, says so."""

    text: str
    is_planned: bool


def units_in(text: str) -> Iterator[Unit]:
    planned_level = 7
    for paragraph in re.split(r"\n\s*\n", prose_of(text)):
        if heading := _HEADING.match(paragraph):
            level = len(heading[1])
            if level <= planned_level:
                planned_level = level if "(planned)" in heading[2] else 7
        rows = paragraph.split("\n") if paragraph.startswith("|") else [paragraph]
        for row in rows:
            yield Unit(row, planned_level < 7 or "planned" in row)


def code_spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in _CODE_SPAN.findall(text)]


def table_below(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    below = f"\n{text}".split(f"\n{heading}\n", maxsplit=1)[1]
    rows = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert rows is not None, heading
    lines = rows[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# Links


def anchors_of(text: str) -> set[str]:
    """Anchors as GitHub makes them; those of the site are checked when it is built."""
    titles = (found[2].replace("`", "") for found in _HEADING.finditer(prose_of(text)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-").lower() for title in titles}


def broken_links(text: str, folder: Path) -> Iterator[str]:
    for target in _LINK.findall(_CODE_SPAN.sub("", prose_of(text))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        page = folder / path
        if not page.exists() or (
            anchor and anchor not in anchors_of(page.read_text() if path else text)
        ):
            yield target


def test_every_link_leads_somewhere() -> None:
    found = {name_of(page): list(broken_links(page.read_text(), page.parent)) for page in PAGES}

    assert {name: links for name, links in found.items() if links} == {}


def test_a_broken_link_is_noticed() -> None:
    text = "# A b\n[1](#a-b) [2](#c) [`3`](README.md) [4](gone.md)\n```\n[5](gone.md)\n```\n"

    assert list(broken_links(text, ROOT)) == ["#c", "gone.md"]


# Examples


def pages_with(language: str) -> list[Path]:
    pages = [
        page for page in PAGES if language in {b.language for b in blocks_in(page.read_text())}
    ]
    assert pages, f"no page has a block of {language}"
    return pages


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    script = ""
    for block in blocks_in(page.read_text()):
        if block.language == "python":
            # Blank lines in between, so that a traceback names the line of the page.
            script += "\n" * (block.line - script.count("\n")) + block.text

    done = run([sys.executable, "-W", "error", "-c", script], tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", pages_with("pycon"), ids=name_of)
def test_python_sessions_print_what_is_shown(page: Path) -> None:
    complaints: list[str] = []
    for block in blocks_in(page.read_text()):
        if block.language == "pycon":
            session = doctest.DocTestParser().get_doctest(
                block.text, {}, name_of(page), name_of(page), block.line
            )
            assert session.examples, f"{name_of(page)}:{block.line} has no >>>"
            doctest.DocTestRunner(verbose=False).run(session, out=complaints.append)

    assert complaints == []


@pytest.mark.parametrize("page", pages_with("console"), ids=name_of)
def test_console_examples_print_what_is_shown(page: Path) -> None:
    for block in blocks_in(page.read_text()):
        if block.language == "console":
            first, *commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
            assert not first, f"{name_of(page)}:{block.line} does not begin with a command"
            for command in commands:
                line, _, expected = command.partition("\n")
                done = run(["bash", "-c", line], ROOT)
                assert done.stdout == expected, line
                assert done.returncode == 0, done.stderr


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# Commands


def shell_lines(text: str) -> list[str]:
    shown = [b.text for b in blocks_in(text) if b.language in ("sh", "console", "text")]
    lines = "".join(shown).splitlines()
    return [line.strip().removeprefix("$ ") for line in lines]


def is_command(line: str) -> bool:
    """Whether the words after ``cometmq`` name a command, as far as they can."""
    command: Any = app
    for word in line.split():
        if not isinstance(command, click.Group) or not _WORD.fullmatch(word):
            return True
        command = command.get_command(click.Context(command), word)
        if command is None:
            return False
    return True


def unknown_commands(text: str) -> list[str]:
    named = [found for line in shell_lines(text) for found in _COMETMQ.findall(line)]
    for unit in units_in(text):
        if not unit.is_planned:
            named += [found for span in code_spans(unit.text) for found in _COMETMQ.findall(span)]
    return [line for line in named if not is_command(line)]


def test_every_command_named_exists_or_is_planned() -> None:
    found = {name_of(page): unknown_commands(page.read_text()) for page in PAGES}

    assert {name: commands for name, commands in found.items() if commands} == {}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    text = (
        "`cometmq decode id X` `cometmq fly`\n\nplanned: `cometmq top`\n```sh\na | cometmq x\n```\n"
    )

    assert unknown_commands(text) == ["x", "fly"]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", read("Makefile"), re.MULTILINE))


def test_every_make_target_and_program_named_exists() -> None:
    texts = [page.read_text() for page in PAGES]
    lines = [line for text in texts for line in (*shell_lines(text), *code_spans(prose_of(text)))]
    words = {word for line in lines if line.startswith("make ") for word in line.split()[1:]}
    programs = {found for line in lines for found in re.findall(r"\bpython -m ([\w.]+)", line)}

    assert {word for word in words if _WORD.fullmatch(word)} <= make_targets()
    assert [name for name in programs if importlib.util.find_spec(name) is None] == []


# Where things live


def lives(name: str) -> bool:
    """Whether a dotted name below ``cometmq`` is a package, a module or something in one."""
    place, parts = PACKAGE, name.split(".")
    for number, part in enumerate(parts):
        found = [place / part, place / f"{part}.py", place / f"{part}.pyx"]
        inner = next((path for path in found if path.exists()), None)
        if inner is None:
            value: Any = importlib.import_module(".".join(["cometmq", *parts[:number]]))
            for attribute in parts[number:]:
                value = getattr(value, attribute, None)
            return number > 0 and value is not None
        place = inner
    return True


def modules_in(text: str) -> set[str]:
    found = (_MODULE.fullmatch(span) for span in code_spans(text))
    return {match[1] + match[2] for match in found if match and match[1] in ROOMS}


@pytest.mark.parametrize("page", MAPS, ids=name_of)
def test_every_module_named_exists_or_is_planned(page: Path) -> None:
    units = list(units_in(page.read_text()))

    unmarked = [n for unit in units if not unit.is_planned for n in modules_in(unit.text)]
    rows = [unit for unit in units if unit.text.startswith("|") and unit.is_planned]
    stale = [row.text for row in rows if (named := modules_in(row.text)) and all(map(lives, named))]

    assert [name for name in unmarked if not lives(name)] == []
    assert stale == [], "planned, but it is there"


def test_modules_are_told_apart_from_other_words() -> None:
    assert modules_in("`codec.record` `cometmq.store` `topic.name` `Codec`") == {
        "codec.record",
        "store",
    }
    assert lives("codec.record.parse")
    assert lives("_fast.frames")
    assert not lives("codec.record.nothing")
    assert not lives("nothing")


def test_the_tree_in_the_architecture_is_the_tree() -> None:
    drawn = blocks_in(read("ARCHITECTURE.md").split("\n## The tree\n")[1])[0].text
    folders: list[Path] = [ROOT]
    listed = set()
    for line in drawn.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        path = folders[depth] / name
        folders[depth + 1 :] = [path]
        listed.add(path)
        assert path.exists() != ("(planned)" in line), line

    built = {path for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert built - listed - {PACKAGE / "__pycache__"} == set()


def test_the_layers_in_the_architecture_are_those_of_the_contract() -> None:
    drawn = blocks_in(read("ARCHITECTURE.md").split("\n## Layers\n")[1])[0].text

    assert [re.findall(r"\w+", line) for line in drawn.splitlines()] == [
        re.findall(r"\w+", layer) for layer in LAYERS
    ]
    for name in re.findall(r"\(?\w+\)?", drawn):
        assert lives(name.strip("()")) != name.startswith("("), name


# Pages with a form of their own


def test_every_decision_has_its_sections_and_stands_in_the_index() -> None:
    decisions = sorted((DOCS / "adr").glob("[0-9]*.md"))
    written = []
    for page in decisions:
        text = page.read_text()
        (title,) = re.findall(r"^# (.+)$", text, re.MULTILINE)
        (status,) = re.findall(r"^Status: (.+)$", text, re.MULTILINE)
        number, _, subject = title.partition(" ")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ADR_SECTIONS, page.name
        assert page.name.startswith(f"{number}-")
        written.append([f"[{number}]({page.name})", subject, status])

    assert table_below(read("docs/adr/README.md"), "# Decisions") == written


def test_the_changelog_begins_with_what_is_not_released_yet() -> None:
    headings = re.findall(r"^## (.+)$", read("CHANGELOG.md"), re.MULTILINE)

    assert headings[0] == "Unreleased"


def test_the_status_table_knows_two_states() -> None:
    states = [state for _, state in table_below(read("README.md"), "## Status")]

    assert set(states) == {"works", "planned"}
    assert states == sorted(states, reverse=True), "what works comes first"


def test_every_dependency_has_a_sentence_of_defence() -> None:
    project = PROJECT["project"]
    declared = chain(project["dependencies"], *project["optional-dependencies"].values())
    table = table_below(read("CONTRIBUTING.md"), "## Dependencies")

    names = {re.split(r"[>=<;]", requirement)[0] for requirement in declared}
    assert {package.strip("`") for package, _, _ in table} == names
    assert all(reason for _, _, reason in table)


def test_every_make_target_is_explained() -> None:
    table = table_below(read("CONTRIBUTING.md"), "## Set-up")

    assert {target.strip("`").removeprefix("make ") for target, _ in table} == make_targets()


def test_every_variable_for_contributors_is_read_somewhere() -> None:
    named = set(re.findall(r"COMETMQ_[A-Z_]+", read("CONTRIBUTING.md")))
    programs = [path for path in tree.tracked_files() if path.suffix in {".py", ".sh"}]
    code = "\n".join(path.read_text() for path in programs if path != Path(__file__))

    assert named
    assert {name for name in named if f'"{name}"' not in code} == set()


# The site


def test_the_navigation_covers_every_page() -> None:
    navigation = read("mkdocs.yml").split("\nnav:\n")[1]

    assert sorted(re.findall(r"[\w/-]+\.md", navigation)) == [
        page.relative_to(DOCS).as_posix() for page in SITE_PAGES
    ]


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = run([sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)], ROOT)
    assert done.returncode == 0, done.stderr

    foreign = re.compile(r'(?:\bsrc=|<link\b[^>]*\bhref=)"(?:https?:)?//[^"]*')
    pages = list(site.rglob("*.html"))

    assert len(pages) > len(SITE_PAGES)
    assert [found for page in pages for found in foreign.findall(page.read_text())] == []
