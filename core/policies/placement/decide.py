"""Tries the placement rules in order, then ``root.default`` or the recovery queue (config.md 8.1, B21, B22, B24;
protocol.md 6.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kornel.core.domain.names import DEFAULT_PATH, RECOVERY_PATH
from kornel.core.model.queues import Queue
from kornel.core.policies.access import Submitter
from kornel.core.policies.placement.applicant import Applicant
from kornel.core.policies.placement.effort import MOST_STEPS, NameSizes
from kornel.core.policies.placement.queue_paths import find_nearest
from kornel.core.policies.placement.rules import NoMatch, Rule

_NO_NAMES: Final = NameSizes(0, 0, 0)
_TOO_MANY: Final = "matching the filters up to this rule would take too long for these names"


class Placed(NamedTuple):
    """The leaf at *path*. ``above`` is that leaf, or the deepest existing parent of one still to be created."""

    path: str
    above: Queue

    @property
    def exists(self) -> bool:
        """Tells whether the leaf exists already."""
        return self.above.path == self.path


class Unplaced(NamedTuple):
    """The answer if no queue accepts the application: why each rule, in order, and the default queue did not."""

    outcomes: tuple[str, ...]


def place_applicant(rules: Sequence[Rule], queues: Mapping[str, Queue], applicant: Applicant) -> Placed | Unplaced:
    """Returns the queue of the first rule whose queue accepts *applicant*. *queues*: all queues by path in lower case,
    including ``root``.

    A forced applicant always gets a place: if no rule places it, that is the recovery queue.
    """
    outcomes: list[str] = []
    left = MOST_STEPS
    sizes = _NO_NAMES
    submitter = Submitter(applicant.user, applicant.groups)
    for rule in rules:
        if sizes is _NO_NAMES and rule.effort.depends_on_names:
            sizes = NameSizes.measure_names(applicant.user, applicant.groups)
        left -= rule.effort.count_steps(sizes)
        if left < 0:
            # Later rules are not tried either: nobody chooses the rule for himself by having many groups.
            return _recover(applicant, queues) or Unplaced((*outcomes, f"{rule.name}: {_TOO_MANY}"))
        path = rule.path(applicant, queues)
        found = path if isinstance(path, NoMatch) else _accept_queue(path, queues, applicant, submitter)
        if isinstance(found, Placed):
            return found
        outcomes.append(f"{rule.name}: {found.why}")
    if recovered := _recover(applicant, queues):
        return recovered
    if DEFAULT_PATH not in queues:
        return Unplaced((*outcomes, f"there is no {DEFAULT_PATH}"))
    found = _accept_queue(DEFAULT_PATH, queues, applicant, submitter)
    return found if isinstance(found, Placed) else Unplaced((*outcomes, found.why))


def _recover(applicant: Applicant, queues: Mapping[str, Queue]) -> Placed | None:
    """Returns the place of a forced applicant that no rule has placed; ``None`` for any other applicant."""
    return Placed(RECOVERY_PATH, find_nearest(RECOVERY_PATH, queues)) if applicant.forced else None


def _accept_queue(
    path: str, queues: Mapping[str, Queue], applicant: Applicant, submitter: Submitter
) -> Placed | NoMatch:
    """Returns the queue at *path* if it accepts the applicant or may be created for it; otherwise, why not."""
    above = find_nearest(path, queues)
    if path == RECOVERY_PATH:
        if applicant.forced:
            return Placed(path, above)
        return NoMatch(f"{path} takes running work only")
    if not submitter.may_submit(above):
        return NoMatch(f"no submit access to {above.path}")
    if above.draining:
        return NoMatch(f"{above.path} is draining")
    if above.path == path and not above.leaf:
        return NoMatch(f"{path} is a parent")
    if above.path != path and above.leaf:
        return NoMatch(f"{above.path} is a leaf, {path} cannot be below it")
    return Placed(path, above)
