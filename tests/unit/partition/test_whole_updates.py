"""An update of the configuration happens whole or not at all (B2)."""

from __future__ import annotations

import pytest

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import (
    ApplicationSpec,
    CommandRefused,
    RegisterManager,
    UpdateApplications,
    UpdateConfiguration,
)
from kornel.core.engine.engine import Engine
from kornel.core.state.partition_state import PartitionState
from kornel.core.telling.reader import Reader

BEFORE = """
partitions:
  - name: default
    queues: [{name: root, submitacl: "*", queues: [{name: a}]}]
  - name: other
    queues: [{name: root, submitacl: "*", queues: [{name: a}]}]
"""

CHANGED_FIRST = """
partitions:
  - name: default
    placementrules: [{name: user, create: true}]
    usergroupresolver: {type: os}
    queues: [{name: root, submitacl: "*", maxapplications: 5, queues: [{name: a, maxapplications: 2}, {name: b}]}]
"""

IN_THE_WAY = (
    CHANGED_FIRST
    + """
  - name: other
    queues: [{name: root, submitacl: "*", queues: [{name: a, queues: [{name: below}]}]}]
"""
)

INVALID = (
    CHANGED_FIRST
    + """
  - name: other
    queues: [{name: root, queues: [{name: a, maxapplications: many}]}]
"""
)


def picture(state: PartitionState) -> object:
    """What an update of *state* could have changed."""
    queues = {path: (queue.max, queue.max_applications, queue.draining) for path, queue in state.queues.items()}
    return queues, state.placement_rules, state.preemption, state.resolver


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(IN_THE_WAY, CommandRefused, id="B2 a leaf with applications cannot become a parent"),
        pytest.param(INVALID, ConfigError, id="B2 the second partition is invalid"),
    ],
)
def test_fault_in_the_second_partition_leaves_the_first_alone(text: str, error: type[Exception]) -> None:
    """Neither rules nor queues, limits nor resolver of any partition change."""
    engine = Engine()
    engine.apply(RegisterManager("rm", BEFORE), 0)
    engine.apply(UpdateApplications("rm", (ApplicationSpec("app", "root.a", "[rm]other", "ann"),)), 1)
    state = engine.partition("[rm]default")
    assert state is not None
    before, checksum = picture(state), engine.checksum
    with pytest.raises(error):
        engine.apply(UpdateConfiguration("rm", text), 2)
    assert (picture(state), engine.checksum) == (before, checksum)
    assert engine.partition("[rm]default") is state
    engine.apply(UpdateConfiguration("rm", CHANGED_FIRST), 3)
    assert picture(state) != before
    assert Reader(engine)["default"].resolver == "os"
