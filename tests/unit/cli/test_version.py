import json

from click.testing import CliRunner

from cometmq import __version__
from cometmq.cli.app import app
from cometmq.cli.machine import PACKAGES, Package, find_package, this_machine
from cometmq.codec import core

FIELDS = ["version", "python", "platform", "core", *PACKAGES]


def test_the_version_comes_with_what_it_runs_on() -> None:
    result = CliRunner().invoke(app, ["version", "-o", "json"])

    shown = json.loads(result.stdout)
    assert result.exit_code == 0
    assert list(shown) == FIELDS
    assert shown["version"] == __version__
    assert shown["core"] == core.active()


def test_every_form_has_the_same_fields() -> None:
    for form, separator in (("plain", "\t"), ("table", " "), ("yaml", ":")):
        lines = CliRunner().invoke(app, ["version", "-o", form]).stdout.splitlines()

        assert [line.split(separator)[0] for line in lines] == FIELDS


def test_the_short_version_is_one_line() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert result.stdout == f"cometmq {__version__}\n"


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert find_package("cometmq-no-such-package") == Package(None)


def test_the_machine_is_this_one() -> None:
    machine = this_machine()

    assert machine.packages.keys() == set(PACKAGES)
    assert machine.core in ("compiled", "plain")
