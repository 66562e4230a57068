"""The configuration lines of a scenario, as the text of a queues.yaml."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from kornel.core.domain.resources import Resources
from tests.scenarios.language import Line, amounts

MONITOR: Final = {"enabled": True, "interval_ms": 5_000, "max_wait_ms": 10_000, "per_round": 1, "natural_factor": 1}


class Configuration:
    """Configuration lines, gathered into the text of a queues.yaml."""

    def __init__(self) -> None:
        self._partitions: list[dict[str, Any]] = []
        self._text: str | None = None

    def __bool__(self) -> bool:
        return bool(self._partitions) or self._text is not None

    def yaml(self, text: str) -> None:
        self._text = text

    def text(self) -> str:
        if self._text is not None:
            return self._text
        return json.dumps({"partitions": self._partitions}, indent=1)

    def partition(self, line: Line) -> None:
        options = line.options
        config: dict[str, Any] = {"name": line.name or "default", "queues": [_bare("root")]}
        if "gangs" in options:
            config["gang"] = {"scheduling": options["gangs"]}
        if "nodesort" in options or "weights" in options:
            config["nodesortpolicy"] = {"type": options.get("nodesort", "fair")}
            if "weights" in options:
                config["nodesortpolicy"]["resourceweights"] = dict(amounts(options["weights"]))
        if "topology" in options:
            config["topology"] = options["topology"].split(",")
        preemption: dict[str, Any] = {}
        if "preemption" in options:
            preemption["enabled"] = options["preemption"] != "off"
        if "coexist" in options:
            preemption["coexist"] = options["coexist"] == "on"
        if "monitor" in options:
            preemption["monitor"] = {**MONITOR, **yaml.safe_load(options["monitor"])}
        if "quota" in options:
            preemption["quotapreemptionenabled"] = options["quota"] == "on"
        if "guaranteemode" in options:
            preemption["guaranteemode"] = options["guaranteemode"]
        for name in ("governor", "victim", "policies"):
            if name in options:
                preemption[name] = yaml.safe_load(options[name])
        if "cost" in options:
            preemption["cost"] = options["cost"]
        cycle = {name: json.loads(options[name]) for name in ("limit", "batch", "interval_ms") if name in options}
        if cycle:
            preemption["cycle"] = cycle
        if preemption:
            config["preemption"] = preemption
        self._partitions.append(config)

    def _place(self, path: str) -> dict[str, Any]:
        """The queue at *path*, made as it is first met."""
        if not self._partitions:
            self.partition(Line("partition", [], {}))
        place: dict[str, Any] = self._partitions[-1]["queues"][0]
        for name in path.split(".")[1:]:
            children = place.setdefault("queues", [])
            found = next((child for child in children if child["name"] == name), None)
            if found is None:
                found = _bare(name)
                children.append(found)
            place = found
        return place

    def limit(self, line: Line) -> None:
        limit: dict[str, Any] = {"limit": ""}
        for key in ("users", "groups"):
            if key in line.options:
                limit[key] = line.options[key].split(",")
        if "max" in line.options:
            limit["maxresources"] = _quantities(amounts(line.options["max"]))
        if "apps" in line.options:
            limit["maxapplications"] = int(line.options["apps"])
        self._place(line.name).setdefault("limits", []).append(limit)

    def queue(self, line: Line) -> None:
        place = self._place(line.name)
        if line.flag("parent"):
            place["parent"] = True
        for key, value in line.options.items():
            if key in ("guaranteed", "max"):
                place.setdefault("resources", {})[key] = _quantities(amounts(value))
            elif key == "maxapplications":
                place[key] = int(value)
            elif key == "submitacl":
                place[key] = value
            else:
                place.setdefault("properties", {})[key] = value


def _bare(name: str) -> dict[str, Any]:
    return {"name": name, "submitacl": "*"} if name == "root" else {"name": name}


def _quantities(resources: Resources) -> dict[str, str]:
    """Base units as the configuration writes them: vcore in thousandths."""
    return {name: f"{amount}m" if name == "vcore" else str(amount) for name, amount in resources.items()}
