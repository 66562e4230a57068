"""Extra settings: taken with an accepted registration or update, left alone by a refused one."""

from __future__ import annotations

import pytest

from kornel.core.config.text.problems import ConfigError
from kornel.core.domain.commands import CommandRefused, RegisterManager, UnregisterManager, UpdateConfiguration
from kornel.core.engine.engine import Engine

CONFIG = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]"
OTHER = CONFIG.replace("name: a}", "name: b}")
BAD = "partitions: 7"
OLD, NEW = (("event.requestCapacity", "5"),), (("log.level", "debug"),)


@pytest.fixture
def engine() -> Engine:
    """rm-1 is registered with OLD."""
    engine = Engine()
    engine.apply(RegisterManager("rm-1", CONFIG, extra_config=OLD), 1)
    return engine


@pytest.mark.parametrize("config", [CONFIG, OTHER])
def test_case_15_an_update_replaces_them_even_with_identical_text(engine: Engine, config: str) -> None:
    """15: the map is replaced as a whole, queues untouched if their text is the same."""
    engine.apply(UpdateConfiguration("rm-1", config, extra_config=NEW), 2)
    assert engine.extra_config == dict(NEW)


def test_a_refused_update_leaves_them_alone(engine: Engine) -> None:
    """17, as this core decides it: nothing of a refused update is applied."""
    with pytest.raises(ConfigError):
        engine.apply(UpdateConfiguration("rm-1", BAD, extra_config=NEW), 2)
    with pytest.raises(CommandRefused):
        engine.apply(UpdateConfiguration("rm-2", CONFIG, extra_config=NEW), 3)
    assert engine.extra_config == dict(OLD)


def test_a_failed_registration_and_the_end_of_one_clear_them(engine: Engine) -> None:
    """5.1: nobody is registered any more, so nothing is in force."""
    with pytest.raises(ConfigError):
        engine.apply(RegisterManager("rm-1", BAD, extra_config=NEW), 2)
    assert engine.extra_config == {}
    engine.apply(RegisterManager("rm-1", CONFIG, extra_config=NEW), 3)
    assert engine.extra_config == dict(NEW)
    engine.apply(UnregisterManager("rm-1"), 4)
    assert engine.extra_config == {}
