"""Says in one line at the end of a run which programs are missing, how many tests that costs, and how to get them."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

PROGRAMS: Final = {
    "no browser at": ("a browser", "chromium-headless-shell"),
    "no directory server": ("slapd", "slapd openssl"),
    "PostgreSQL is not installed": ("PostgreSQL", "postgresql"),
    "promtool": ("promtool", "prometheus"),
    "Go is not installed": ("Go", "golang-go"),
    "Maven is not installed": ("Maven", "maven"),
    "a JDK is not installed": ("a JDK", "default-jdk-headless"),
    "Node.js is not installed": ("Node.js", "nodejs"),
    "npm is not installed": ("npm", "npm"),
    "curl is not installed": ("curl", "curl"),
    "systemd-analyze is not installed": ("systemd-analyze", "systemd"),
    "no container engine": ("a container engine", "podman"),
    "helm is not installed": ("helm", "https://helm.sh/docs/intro/install"),
    "kustomize is not installed": ("kustomize", "https://kubectl.docs.kubernetes.io/installation/kustomize"),
}
"""By what the reason of a skipped test contains: what is missing, and Debian's packages for it or an address."""


def describe_missing(reasons: list[str]) -> str:
    """Returns one line about *reasons* for which tests were skipped; empty when no program is missing."""
    counts: Counter[str] = Counter()
    for reason in reasons:
        counts.update([known for known in PROGRAMS if known in reason][:1])
    if not counts:
        return ""
    named = ", ".join(f"{PROGRAMS[known][0]} ({count})" for known, count in counts.items())
    sources = [PROGRAMS[known][1] for known in counts]
    packages = " ".join(source for source in sources if "://" not in source)
    ways = [f"apt-get install {packages}"] if packages else []
    ways += [source for source in sources if "://" in source]
    return f"{counts.total()} tests skipped, because these are missing: {named}. To get them: {', '.join(ways)}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    line = describe_missing([report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)])
    if line:
        terminalreporter.write_line(line, yellow=True)
