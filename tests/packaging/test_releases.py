"""Versions differ for different code; what names a release agrees; each change has a file that can be read."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import kornel

ROOT = Path(__file__).resolve().parents[2]
DIGEST = r"\+s[0-9a-f]{8}"
KINDS = ("added", "changed", "fixed")


def load(home: Path, released: str = "") -> ModuleType:
    """Returns the module ``kornel`` as it would be in *home*, with the digest *released* of its release."""
    text = (ROOT / "kornel/__init__.py").read_text()
    home.mkdir(exist_ok=True)
    (home / "__init__.py").write_text(re.sub('(?m)^RELEASED = ".*"$', f'RELEASED = "{released}"', text))
    spec = importlib.util.spec_from_file_location("kornel_elsewhere", home / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A package whose folder ``core`` is a link, as in a checkout."""
    (tmp_path / "core/engine").mkdir(parents=True)
    (tmp_path / "core/engine/engine.py").write_text("a = 1\n")
    (tmp_path / "conformance").mkdir()
    (tmp_path / "kornel").mkdir()
    (tmp_path / "kornel/core").symlink_to("../core")
    (tmp_path / "kornel/conformance").symlink_to("../conformance")
    return tmp_path / "kornel"


def test_different_code_has_another_version(home: Path) -> None:
    """Whatever differs: a byte, the name of a file, where a byte belongs."""
    engine = home / "core/engine/engine.py"
    versions = [load(home).__version__]
    for change in (
        lambda: engine.write_text("a = 2\n"),
        lambda: engine.rename(engine.with_name("motor.py")),
        lambda: (home / "core/page.html").write_text(""),
        lambda: (home / "core/engine/motor.py").write_text("a = "),
        lambda: (home / "core/page.html").write_text("2\n"),
    ):
        change()
        versions.append(load(home).__version__)
    assert len(set(versions)) == 6
    assert all(re.fullmatch(re.escape(kornel.RELEASE) + r"\.dev0" + DIGEST, version) for version in versions)


def test_what_is_no_code_leaves_the_version(home: Path) -> None:
    """Links make no difference, nor what Python compiles, nor the rules that only an installation has here."""
    version = load(home).__version__
    (home / "core/engine/__pycache__").mkdir()
    (home / "core/engine/__pycache__/engine.cpython-311.pyc").write_bytes(b"compiled")
    (home / "core/.engine.py.swp").write_text("edited")
    (home / "conformance/spec").mkdir()
    (home / "conformance/spec/protocol.md").write_text("1.")
    (home / "core").unlink()
    (home.parent / "core").rename(home / "core")
    assert load(home).__version__ == version


def test_a_release_has_its_number_alone_until_somebody_changes_it(home: Path) -> None:
    """What was built from the release with changes comes after it, by PEP 440."""
    digest = load(home).digest_code()
    assert load(home, digest).__version__ == kornel.RELEASE
    (home / "core/engine/engine.py").write_text("a = 2\n")
    assert re.fullmatch(re.escape(kornel.RELEASE) + DIGEST, load(home, digest).__version__)


def test_commands_that_do_not_ask_read_no_code() -> None:
    code = "import sys, kornel.cli.entry; assert '__version__' not in vars(sys.modules['kornel']); kornel.__version__"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_manifests_and_chart_name_the_release() -> None:
    """It has notes, and images and chart have its number."""
    chart = yaml.safe_load((ROOT / "deploy/helm/kornel/Chart.yaml").read_text())
    tags = [
        image["newTag"]
        for path in ("deploy/kubernetes", "deploy/kubernetes/shim")
        for image in yaml.safe_load((ROOT / path / "kustomization.yaml").read_text())["images"]
    ]
    assert {str(chart["version"]), str(chart["appVersion"]), *tags} == {kornel.RELEASE}
    assert (ROOT / f"docs/releases/{kornel.RELEASE}.md").exists()


def test_each_change_says_what_it_is() -> None:
    """``changelog.d/+name.TYPE.md``, or with the number of an issue for the name; ``make changes`` reads them."""
    for path in (ROOT / "changelog.d").glob("[!.]*"):
        assert re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({'|'.join(KINDS)})\.md", path.name), path.name
        text = path.read_text()
        assert text.endswith("\n")
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert (ROOT / link).exists(), f"{path.name} links to {link}"
    unreleased = (ROOT / "CHANGELOG.md").read_text().partition("\n## [")[0]
    assert not re.search(r"(?m)^(## |- )", unreleased), "what is not released stands in changelog.d"
    if kornel.digest_code() == kornel.RELEASED:
        assert not list((ROOT / "changelog.d").glob("*.md"))
