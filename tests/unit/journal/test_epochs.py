"""Another core that goes on from a journal: what begins again with it, and what does not."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kornel.core.domain.commands import UpdateConfiguration
from kornel.core.domain.effects import Effect, Released
from kornel.core.journal.content.replay import Replay
from kornel.core.journal.database.reading import read_records
from kornel.core.journal.journal import Journal
from kornel.core.telling.explain import QueueAt
from kornel.core.telling.reader import Reader
from tests.patience import PATIENCE_S
from tests.unit.journal.made import RM, asks, decide, open_journal, open_store, small_cluster

SECOND_NS = 10**9
DELAY_S = 60
ENFORCED = """
partitions:
  - name: default
    preemption: {quotapreemptionenabled: true}
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            resources: {max: {vcore: 2m}}
            properties: {quota.preemption.delay: 60s}
"""


async def wait(journal: Journal, seconds: int) -> list[Effect]:
    """Returns what the engine decides while time passes."""
    effects: list[Effect] = []
    for _ in range(seconds):
        journal.last_ns += SECOND_NS
        effects += journal.first.engine.preempt(journal.last_ns)
        effects += journal.first.engine.cycle(journal.last_ns, 100).effects
    await journal.first.gate.wait_until_passed()
    return effects


def explained(journal: Journal) -> tuple[str, int | None]:
    """Returns what is said about the lowered max, and in how many seconds it is to be enforced."""
    found = Reader(journal.first.engine)["default"].explain(QueueAt("root.a"))
    assert found is not None
    (above,) = found.above
    return above.course, above.due_ns and (above.due_ns - journal.last_ns) // SECOND_NS


def released(effects: list[Effect]) -> int:
    return sum(isinstance(effect, Released) for effect in effects)


async def test_the_delay_of_a_lowered_max_begins_again(tmp_path: Path) -> None:
    """In full, as after any restart; a replay of both epochs decides the same."""
    path = tmp_path / "journal.db"
    journal = open_journal(path)
    journal.start()
    await decide(journal, [*small_cluster(), asks(0, 5)])
    await decide(journal, [UpdateConfiguration(RM, ENFORCED)])
    assert not released(await wait(journal, DELAY_S - 20))
    assert explained(journal) == ("it is to be enforced", 20)
    journal.close(PATIENCE_S)
    journal = open_journal(path)
    journal.start()
    assert explained(journal) == ("its delay began again when the core was restarted; it is to be enforced", DELAY_S)
    assert not released(await wait(journal, DELAY_S - 5))
    await decide(journal, [UpdateConfiguration(RM, ENFORCED.replace("vcore: 2m", "vcore: 1m"))])
    assert explained(journal) == ("it is to be enforced", DELAY_S)
    assert not released(await wait(journal, DELAY_S - 5))
    assert released(await wait(journal, 10)) == 4
    journal.close(PATIENCE_S)
    replay = Replay()
    with closing(open_store(path)) as store:
        assert all(replay.play(record) is None for record, _ in read_records(store))


async def test_without_a_restart_the_delay_is_not_longer(tmp_path: Path) -> None:
    """The same cluster, for comparison."""
    journal = open_journal(tmp_path / "journal.db")
    journal.start()
    await decide(journal, [*small_cluster(), asks(0, 5), UpdateConfiguration(RM, ENFORCED)])
    assert released(await wait(journal, DELAY_S + 5)) == 3
    journal.close(PATIENCE_S)
