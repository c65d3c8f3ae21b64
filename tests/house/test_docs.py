"""Documents tell the truth: links lead somewhere, examples run, what is named exists or is planned.

What a block of code is for is said by its language: ``python`` and ``pycon`` are run, ``console``
is run and its output compared, ``text`` and the rest are shown only. ``sh`` is for people to type:
its commands must exist, and a block of which every program is in ``RUNNABLE`` is run, with folders
and a cluster of the test's own. A page that asks for a name server at 127.0.0.1:9876 gets one.
Pages with Spark are run beside the tests of the connector, so that nothing here needs Java.
"""

import contextlib
import doctest
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from ipaddress import ip_address
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from cometmq.cli.app import app
from cometmq.testing import LocalCluster
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
UP_ADDRESS = "127.0.0.1:9876"
_IPV4 = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
RUNNABLE = {
    *("cat", "cometmq", "cp", "cut", "echo", "grep", "head", "jq", "printf", "seq", "sort", "tail"),
    *("tar", "wc"),
}
"""Programs that do no harm in a folder of their own and need no other machine."""

STAYS_UP = re.compile(
    r"cometmq (?:up\b|(?:broker|nameserver)(?! +[a-z])(?!.* -p\b)|top(?!\w| +-o)|topic tail\b)"
    r"|.* --follow\b"
)
"""Commands that a person ends. The examples in their help texts are started and stopped."""

ROOMS = {name for layer in LAYERS for name in re.findall(r"\w+", layer)} | {"aio"}

_FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^ *\2 *$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
_MODULE = re.compile(r"(?:cometmq\.)?([a-z_]+)((?:\.\w+)*)")
_COMETMQ = re.compile(r"(?:^|[|;&] *)(?:\S*/)?cometmq +([^|;&#]*)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"| #.*")
_PROGRAM = re.compile(r"(?:^|[|;&] *)(?:\w+=\S* +)*([\w./-]+)")
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


def python_of(page: Path) -> str:
    """The Python examples of a page as one script."""
    script = ""
    for block in blocks_in(page.read_text()):
        if block.language == "python":
            # Blank lines in between, so that a traceback names the line of the page.
            script += "\n" * (block.line - script.count("\n")) + block.text
    return script


def needs_spark(script: str) -> bool:
    return "cometmq.spark" in script or 'format("rocketmq")' in script


SPARK_PAGES = [page for page in pages_with("python") if needs_spark(python_of(page))]
"""Run by tests/spark/test_guides.py, where there is a session."""


def test_what_needs_spark_is_known() -> None:
    assert needs_spark("import cometmq.spark\n")
    assert needs_spark('spark.read.format("rocketmq")\n')
    assert not needs_spark("import cometmq\n")
    assert "SPARK_PAGES" in read("tests/spark/test_guides.py")


@pytest.mark.parametrize(
    "page", [page for page in pages_with("python") if page not in SPARK_PAGES], ids=name_of
)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    with with_a_cluster(python_of(page)) as runnable:
        done = run([sys.executable, "-W", "error", "-c", runnable], tmp_path)

    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def with_a_cluster(script: str) -> Iterator[str]:
    """The script with the address of a new cluster in place of the one of ``cometmq up``."""
    if UP_ADDRESS not in script:
        yield script
        return
    with LocalCluster() as cluster:
        yield script.replace(UP_ADDRESS, cluster.namesrv)


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


def runnable_scripts(text: str) -> list[str]:
    """The blocks of ``sh`` that can be run here, without what stays up."""
    scripts = []
    for block in blocks_in(text):
        joined = block.text.replace("\\\n", " ")
        lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
        programs = {name for line in lines for name in _PROGRAM.findall(_QUOTED.sub("", line))}
        if block.language == "sh" and programs <= RUNNABLE:
            scripts.append("\n".join(line for line in lines if not STAYS_UP.match(line)))
    return [script for script in scripts if script]


@pytest.mark.parametrize("page", pages_with("sh"), ids=name_of)
def test_commands_name_no_address_that_may_be_somebodys(page: Path) -> None:
    """Who pastes an example must not ask a stranger: ``.example`` is nobody's, as loopback is."""
    blocks = [block.text for block in blocks_in(page.read_text()) if block.language == "sh"]
    named = {found for text in blocks for found in _IPV4.findall(text)}

    assert {address for address in named if not ip_address(address).is_loopback} <= {"0.0.0.0"}


def test_only_harmless_blocks_are_run() -> None:
    text = "```sh\nX=1 cometmq a | jq '.b|c'\ncometmq up\n```\n```sh\ncometmq d | rm e\n```\n"

    assert runnable_scripts(text) == ["X=1 cometmq a | jq '.b|c'"]


@pytest.mark.parametrize(
    ("line", "stays_up"),
    [
        ("cometmq up", True),
        ("cometmq broker -c FILE", True),
        ("cometmq broker -c FILE -p", False),
        ("cometmq broker config get", False),
        ("cometmq top", True),
        ("cometmq top -o json", False),
        ("cometmq topic ls", False),
        ("cometmq topic tail orders", True),
        ("cometmq consume orders --follow", True),
    ],
)
def test_what_stays_up_is_known(line: str, stays_up: bool) -> None:
    assert bool(STAYS_UP.match(line)) == stays_up


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if runnable_scripts(page.read_text())], ids=name_of
)
def test_shell_examples_run(page: Path, tmp_path: Path) -> None:
    scripts = runnable_scripts(page.read_text())
    if any("jq " in script for script in scripts) and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    places = furnish(tmp_path)
    with LocalCluster() as cluster:
        for script in scripts:
            for shown, real in {**places, UP_ADDRESS: cluster.namesrv}.items():
                script = script.replace(shown, real)
            home = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}
            done = run(["bash", "-ec", script], tmp_path, NAMESRV_ADDR=cluster.namesrv, **home)

            assert done.returncode == 0, (script, done.stdout, done.stderr)


def furnish(folder: Path) -> dict[str, str]:
    """Make what examples speak of: a home, a store with messages, settings, room for copies."""
    for name in ("data", "etc", "backup", "home/.config/fish/completions"):
        (folder / name).mkdir(parents=True)
    with tarfile.open(ROOT / "tests/data/store/5.5.0-clean.tar.gz") as archive:
        archive.extractall(folder / "data", filter="data")
    conf = (ROOT / "deploy/broker.conf.example").read_text()
    levels = "messageDelayLevel=1s 2s 3s 5s 10s 30s 1m 1h 2h\n"  # of the broker that wrote it
    (folder / "etc/broker.conf").write_text(conf + levels)
    return {
        "/data/": f"{folder}/data/",
        "/etc/cometmq/": f"{folder}/etc/",
        "/backup/": f"{folder}/backup/",
    }


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        stdin=subprocess.DEVNULL,
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


def options_of(line: str) -> tuple[set[str], set[str]]:
    """The options that stand after ``cometmq``, and those that the command has."""
    command: Any = app
    words = _QUOTED.sub("", line.partition("$(")[0]).split()
    known = {name for param in app.params for name in (*param.opts, *param.secondary_opts)}
    for word in words:
        if word.startswith("-"):
            continue
        found = isinstance(command, click.Group) and command.get_command(click.Context(app), word)
        if not found:
            break
        command = found
        known |= {name for param in found.params for name in (*param.opts, *param.secondary_opts)}
    named = {word.partition("=")[0].rstrip("`,") for word in words if word.startswith("--")}
    return named - {"--help", "--"}, known


def unknown_options(text: str) -> list[str]:
    named = [found for line in shell_lines(text) for found in _COMETMQ.findall(line)]
    for unit in units_in(text):
        if not unit.is_planned:
            named += [found for span in code_spans(unit.text) for found in _COMETMQ.findall(span)]
    return [
        f"{option} of {line.strip()}"
        for line in named
        for options, known in [options_of(line)]
        for option in sorted(options - known)
    ]


def test_every_option_named_exists() -> None:
    found = {name_of(page): unknown_options(page.read_text()) for page in PAGES}

    assert {name: options for name, options in found.items() if options} == {}


def test_an_option_that_does_not_exist_is_noticed() -> None:
    text = "`cometmq topic edit T --order --fast` `cometmq --debug topic ls --slow '--quoted'`"

    assert unknown_options(text) == [
        "--fast of topic edit T --order --fast",
        "--slow of --debug topic ls --slow '--quoted'",
    ]


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


def test_every_class_in_the_glossary_lives_where_it_says() -> None:
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in read("docs/internals/glossary.md").splitlines()
        if line.startswith("|") and line.count("|") == 4
    ]
    listed = [
        (name, sorted(modules_in(place)))
        for _, ours, place in cells
        for name in code_spans(ours)
        if re.fullmatch(r"[A-Z]\w+[a-z]\w*", name) and modules_in(place)
    ]

    def source(module: str) -> str:
        path = PACKAGE / module.replace(".", "/")
        files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        return "\n".join(file.read_text() for file in files)

    homeless = [
        (name, modules)
        for name, modules in listed
        if not any(re.search(rf"\b{name}\b", source(module)) for module in modules)
    ]
    assert len(listed) > 100
    assert homeless == []


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


def test_every_mqadmin_command_named_is_one_that_the_interop_tests_run() -> None:
    table = table_below(read("docs/reference/compatibility.md"), "## mqadmin")
    listed = {name for _, names in table for name in names.strip("`").split()}
    named = {
        name
        for page in PAGES
        for name in re.findall(r"\bmqadmin ([a-z]+[A-Z]\w*)", page.read_text())
    }

    sources = [read("tests/interop/mqadmin.toml"), read("tests/interop/test_nameserver_mqadmin.py")]
    run = {name for source in sources for name in re.findall(r'"(\w+)[ "]', source)}
    run |= {"addWritePerm", "wipeWritePerm"}  # named in two parts there
    assert named - listed == set()
    assert listed - run == set()


def test_the_table_of_clients_is_the_matrix_of_the_interop_tests() -> None:
    matrix = tomllib.loads(read("tests/interop/matrix.toml"))
    rows = table_below(read("docs/reference/compatibility.md"), "## At a glance: clients")
    listed = {
        test.strip("`"): dict(zip(matrix, answers, strict=True)) for _, test, *answers in rows
    }

    tests = {test for can in matrix.values() for test in can}
    assert listed == {
        test: {client: "yes" if can[test] == "yes" else "no" for client, can in matrix.items()}
        for test in tests
    }


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
