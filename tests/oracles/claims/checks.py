"""One function for each statement of the rule: what breaks it at a quiet point, at a placement, when victims are told.

The words of the rule stand in the docstrings. An ask that is passed over and gets room in the same second all the same
was not; whoever drives the checks drops such findings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tests.oracles.claims import built
from tests.oracles.claims.domains import claims_of_others, members_of, nodes_by_rack, racks_of
from tests.oracles.claims.limits import (
    Bound,
    amounts_refused,
    applications_refused,
    bounds,
    is_kept,
    may_be_refused,
    used_below,
)
from tests.oracles.claims.order import (
    comes_before,
    ignores_priorities,
    is_owed,
    is_owed_against,
    keeps_back,
    may_have_less,
    priorities,
    repairs_first,
    shown_from_root,
    standing,
)
from tests.oracles.claims.room import emptied, find_nodes, find_places, is_usable, open_on
from tests.oracles.claims.scene import Claim, Scene, Task, Waiter
from tests.oracles.rules.world import below, lowest_common

AGE_S = 2
"""The age, in seconds, from which a waiter saves room."""
GATHER_S = 10
"""The seconds that the members of a group that come again wait for each other."""
REST_S = 90
"""The seconds after the last change of demand in which the core may still decide something."""


@dataclass(frozen=True)
class Finding:
    """One break of the rule. ``kind``: number of the rule and what is wrong; ``holder``: who had or got the room."""

    kind: str
    second: int
    ask: str
    holder: str
    says: str
    world: str = ""

    @property
    def what(self) -> tuple[str, str, str]:
        """Returns what it has in common with the same finding at another time."""
        return self.kind, self.ask, self.holder

    def __str__(self) -> str:
        who = f"{self.ask}, {self.holder}" if self.holder else self.ask
        return f"world {self.world} at {self.second} s: rule {self.kind}: {who}: {self.says}"


def find_idle_room(scene: Scene) -> Iterator[Finding]:
    """No ask waits beside room that it may have by rule 3 (quiet points).

    Room is saved against everybody but those who come before the holder, and those who are owed a guarantee by a queue
    that the holder is not in, where the holder is not owed one and need not run there.
    """
    saved = [claim for claim in scene.claims if not claim.firm]
    everybody = {claim.key for claim in saved}
    for waiter in scene.waiters():
        if may_be_refused(scene, waiter) or _gathers(scene, waiter) or _leaves_whole(scene, waiter):
            continue
        if _keeps_to_plan(scene, waiter):
            continue
        places = find_places(scene, waiter, saved=everybody)
        if places is not None:
            yield Finding("3 idle room", scene.now, waiter.name, "", f"waits beside room that nobody saves on {places}")
            continue
        places = find_places(scene, waiter)
        if places is not None:
            held = [claim for claim in saved if claim.node in places.values() and not is_kept(scene, claim, waiter)]
            holder = scene.holder(held[0]) if held else None
            reason = keeps_back(scene, holder, waiter) if holder else ""
            yield Finding(
                f"3 no loan by {reason}", scene.now, waiter.name, held[0].key if held else "", f"waits beside {places}"
            )


def find_kept_room(
    scene: Scene,
    placed: Waiter,
    places: Mapping[str, str],
    moved: Collection[Claim] = (),
    ended: Collection[Claim] = (),
) -> Iterator[Finding]:
    """Saved room counts as taken on its node for all but those who come before the holder or are owed (rule 3).

    These use it only where no room serves them that nobody has saved (placements). Holders on the same node, and equal
    asks of a holder's application, whatever else they say of themselves, have an order of their own. *scene* has the
    claims that stand afterwards, too; *moved*: those whose holders hold others then, because equal ones have swapped;
    *ended*: those that ended before it or after it. Silent where it is not said which claims count for guarantees.
    """
    task, node = placed.tasks[0], places[placed.name]
    here = [claim for claim in scene.claims if claim.node == node and claim.key in scene.waiting]
    if len(placed.tasks) > 1 or any(claim.key == task.key for claim in here):
        return
    holders = [scene.waiting[claim.key] for claim in (*here, *moved) if claim.node == node]
    if any((o.application, o.amounts, o.priority) == (task.application, task.amounts, task.priority) for o in holders):
        return
    if scene.claimants(doubt=True) != scene.claimants():
        return
    owners = {claim.key for claim in here if claim.firm}
    unowned = [scene.running[key][0] for key, ask in scene.leaving.items() if ask not in owners]
    unowned = [victim for victim in unowned if scene.running[victim.key][1] == node]
    taken = [t for t, a in task.amounts.items() if a > open_on(scene, node, t, placed) + _sum(unowned, t)]
    if taken:
        says = f"takes {taken[0]} on {node} that is kept for {[claim.key for claim in here]}"
        yield Finding("3 kept room taken", scene.now, task.key, here[0].key if here else "", says)
    saved = {claim.key for claim in scene.claims if not claim.firm}
    lent = any(a > open_on(scene, node, t, placed, saved=saved) + _sum(unowned, t) for t, a in task.amounts.items())
    held = replace(scene, claims=(*scene.claims, *ended))
    elsewhere = find_places(held, placed, saved={claim.key for claim in held.claims if not claim.firm})
    if lent and not taken and elsewhere and not task.required_node and not claims_of_others(scene, task):
        yield Finding("3 needless loan", scene.now, task.key, here[0].key, f"takes {node}, and {elsewhere} was open")


def find_passed_over(scene: Scene, placed: Waiter, places: Mapping[str, str]) -> Iterator[Finding]:
    """Nobody was passed over who comes before by rule 4, and could have used that room (placements).

    Of those who save room on the same node, one that must run there comes first: the ranks of B.7 stay.
    """
    if _takes_firm(scene, placed, places):
        return
    holds = {claim.node for claim in scene.holds(placed, firm=False)} if placed.required else set()
    for waiter in _others(scene, placed):
        before = comes_before(scene, waiter, placed)
        if not (before or repairs_first(scene, waiter, placed)) or ignores_priorities(scene, waiter, placed):
            continue
        if may_be_refused(scene, waiter) or not _could_use(scene, waiter, places):
            continue
        if any(claim.node in holds for claim in scene.holds(waiter, firm=False)):
            continue
        kind = "4 priority" if before else "7 repair"
        yield Finding(kind, scene.now, waiter.name, placed.name, f"could have used the room on {places}")


def find_equal_passed(scene: Scene, placed: Waiter, _places: Mapping[str, str]) -> Iterator[Finding]:
    """Equal asks of one application swap, so that the one that has waited longest is served (rule 4, placements).

    A firm claim passes to nobody who does not come before its holder, wherever that finds room; and whoever has one
    waits for that.
    """
    task = placed.tasks[0]
    if len(placed.tasks) > 1 or task.group or scene.holds(placed, firm=True):
        return
    firm = {claim.key for claim in scene.claims if claim.firm}
    for other in scene.waiting.values():
        if _equals(task, other) and other.created < task.created and other.key not in firm:
            yield Finding("4 equal asks", scene.now, other.key, task.key, f"has waited longer than {task.key}")


def find_queue_passed(scene: Scene, placed: Waiter, places: Mapping[str, str]) -> Iterator[Finding]:
    """In the order of queues who is below its guarantee comes first, what is over in proportion (rule 4, placements).

    A queue that declares nothing counts with the sum of what its children declare; where they declare nothing either
    it comes behind those below theirs. Silent where somebody in the queue that was served holds a claim.
    """
    leaf = scene.leaf(placed.application)
    if placed.repairs or placed.required:
        return
    for waiter in _others(scene, placed):
        common = lowest_common(leaf, scene.leaf(waiter.application))
        met = priorities(scene, waiter, placed)
        if leaf == scene.leaf(waiter.application) or ignores_priorities(scene, waiter, placed):
            continue
        theirs, ours = below(scene.leaf(waiter.application), common)[-1], below(leaf, common)[-1]
        inside = scene.inside(ours)
        held = any(inside(scene.waiting[claim.key], "") for claim in scene.claims if claim.key in scene.waiting)
        if held or (met is not None and met[0] != met[1]):
            continue
        owed = standing(scene, theirs) == {True} and True not in standing(scene, ours)
        if owed and not may_be_refused(scene, waiter) and _could_use(scene, waiter, places):
            says = f"{theirs} is below its guarantee, and {ours} is not"
            yield Finding("4 order of queues", scene.now, waiter.name, placed.name, says)


def find_not_inherited(scene: Scene, placed: Waiter, places: Mapping[str, str]) -> Iterator[Finding]:
    """A firm claim passes, inside a leaf, to an ask that comes before the holder (rule 4, placements).

    The ask needs no further victim on that node, and laws 1 to 7 would have let every victim go that still leaves. A
    place of a unit and a claim of an ask that must run there pass to nobody, and to one that must run there nothing
    does. Judged for asks no larger than the holder, and for those that require a rack where others of their group run.
    """
    task = placed.tasks[0]
    unit = scene.applications[task.application].minimums.get(task.group, 0) > 1
    if not _takes_firm(scene, placed, places) or unit or placed.required:
        return
    without = replace(scene, claims=tuple(claim for claim in scene.claims if claim.key != task.key))
    leaves_for = [scene.running[key][0].application for key, ask in scene.leaving.items() if ask == task.key]
    for waiter in _others(scene, placed):
        first = waiter.tasks[0]
        same = scene.leaf(first.application) == scene.leaf(task.application)
        if len(waiter.tasks) > 1 or not same or first.group or waiter.required:
            continue
        fits = all(amount <= task.amounts.get(t, 0) for t, amount in first.amounts.items())
        if not fits or not first.may_preempt or first.application in leaves_for:
            continue
        if not comes_before(scene, waiter, placed) or not is_owed(without, waiter):
            continue
        # One that has come in this second may not have been tried yet; a holder has room of its own.
        if waiter.since == scene.now or scene.holds(waiter, firm=True):
            continue
        node = places[task.key]
        theirs = members_of(scene, first)[1].values() if first.in_rack else ()
        if first.in_rack and racks_of(scene, theirs) != {scene.nodes[node].rack}:
            continue
        if is_usable(scene, first, node) and not may_be_refused(without, waiter):
            says = f"comes before the holder of the firm claim on {node}, which was placed there"
            yield Finding("4 firm claim not passed", scene.now, waiter.name, task.key, says)


def find_limit_passed(scene: Scene, placed: Waiter, allowed: Mapping[str, int]) -> Iterator[Finding]:
    """Used + firm is within every limit; queues above their max that get no fuller are excepted (placements).

    *allowed*: what queues above their max used when the ask had victims there, by path and type as ``path/type``.
    """
    for bound in bounds(scene, placed.application):
        for t in placed.types():
            if t not in bound.most:
                continue
            most = max(bound.most[t], allowed.get(f"{bound.path}/{t}", 0) if bound.of_queue else 0)
            alone = scene.sum_running(t, lambda task, _: bound.counts(task.application))  # noqa: B023
            total = used_below(scene, bound, t, placed, doubt=False)
            if total + placed.amount(t) > most:
                kind = "2 limit" if alone + placed.amount(t) > most else "2 limit with firm claims"
                says = f"carries the {bound.name} to {total + placed.amount(t)} of {most} {t}"
                yield Finding(kind, scene.now, placed.name, "", says)
    for what in applications_refused(scene, placed, doubt=False):
        yield Finding(f"2 {what.partition(' ')[0].strip(':')}", scene.now, placed.name, "", f"starts against {what}")


def find_spent_limit(scene: Scene, placed: Waiter, quiet: Scene) -> Iterator[Finding]:
    """Limits fill up as nodes do (rule 3, placements).

    A waiter older than 2 s that amounts of a max or limit refuse saves what comes free below these limits, one waiter
    for each limit, in the line of rule 5. That counts as used for those below the same limit that do not come before
    it, with the exceptions of saved claims. Judged for the first in line, if nodes have room for it and it was refused
    by these limits alone at the last *quiet* point too. Below all that refuse it or none: where nothing is free below
    one of them, it saves nothing below the others. Nor does it begin while somebody smaller waits below the limit whom
    it does not come before, and whose queue has a smaller share (B.7).
    """
    if not built.LIMITS_SAVE or scene.holds(placed, firm=True):
        return
    for waiter in _others(scene, placed):
        if scene.now - waiter.since <= AGE_S or comes_before(scene, placed, waiter):
            continue
        if scene.holds(waiter, firm=True) or quiet.holds(waiter, firm=True):  # That counts as used there already.
            continue
        if repairs_first(scene, placed, waiter) or is_owed_against(scene, placed, waiter):
            continue
        refused = _saving_below(scene, waiter)
        shared = [b for b in refused if b.counts(placed.application) and set(b.most) & set(placed.types())]
        if not shared or {b.name for b in _saving_below(quiet, waiter)} != {b.name for b in refused}:
            continue
        if not all(_has_some(scene, bound, waiter) for bound in refused):
            continue
        rivals = [o for o in scene.waiters() if o.name != waiter.name and any(b.counts(o.application) for b in refused)]
        if any(_goes_by_share(scene, rival, waiter) for rival in rivals):
            continue
        if all(_is_earlier(scene, waiter, rival) for rival in rivals):
            says = f"should save below the {shared[0].name}, and {placed.name} got what came free"
            yield Finding("3 limit not saved", scene.now, waiter.name, placed.name, says)


def find_closed_node(scene: Scene, placed: Waiter, places: Mapping[str, str]) -> Iterator[Finding]:
    """Draining ends claims there, but for an ask that must run there: the ask looks elsewhere (rule 5, placements)."""
    for task in placed.tasks:
        node = places[task.key]
        if scene.nodes[node].drained and task.required_node != node:
            yield Finding("5 drained", scene.now, task.key, "", f"was placed on {node}, which is drained")


def find_split_gang(scene: Scene, placed: Waiter) -> Iterator[Finding]:
    """When tasks of a group come again and nothing of it runs, those that wait are placed together (rule 6).

    None before all of them: as soon as as many wait as its minimum, or no further one has come for `gang.gather`.
    """
    unit = scene.waiter(placed.name)
    task = placed.tasks[0]
    least = scene.applications[task.application].minimums.get(task.group, 0)
    if (
        not built.TASKS_GATHER
        or unit is None
        or least < 2
        or any(member.key in scene.running for member in scene.members(task))
    ):
        return
    if len(placed.tasks) < min(least, len(unit.tasks)):
        says = f"{len(placed.tasks)} of {len(unit.tasks)} that wait are placed, the minimum is {least}"
        yield Finding("6 part of a gang", scene.now, placed.name, "", says)
    elif len(unit.tasks) < least and scene.now - unit.since < GATHER_S:
        says = f"{len(unit.tasks)} of {least} start {scene.now - unit.since} s after the last of them came"
        yield Finding("6 gang not gathered", scene.now, placed.name, "", says)


def find_wrong_rack(
    scene: Scene, placed: Waiter, places: Mapping[str, str], *, at_once: bool = True
) -> Iterator[Finding]:
    """A group that requires a rack stands in one (docs/topology.md, placements).

    Whoever follows others of it goes to a rack of theirs (a firm claim may count, that is not said), and a unit to one
    together. Otherwise the first goes where there is room for all of its size that wait, or to a rack where one of the
    group has a claim. Any idle room counts. *at_once*: nobody was placed since it was decided.
    """
    task = placed.tasks[0]
    waits, runs = members_of(scene, task)
    firm = [claim.node for claim in scene.claims_of(waits) if claim.firm]
    racks, theirs = racks_of(scene, places.values()), racks_of(scene, [*runs.values(), *firm])
    if not task.in_rack or "" in theirs:
        return
    if "" in racks or (len(racks) > 1 and not runs):
        yield Finding("T in several racks", scene.now, task.key, "", f"is placed with its group in {sorted(racks)}")
    elif runs and not racks <= theirs:
        says = f"is placed in {sorted(racks)}, and its group runs in {sorted(theirs)}"
        yield Finding("T in another rack", scene.now, task.key, "", says)
    elif at_once and not runs and not racks & racks_of(scene, [claim.node for claim in scene.claims_of(waits)]):
        alike = [other for other in waits if other.amounts == task.amounts]
        if not _has_room(replace(scene, claims=()), alike, *racks):
            says = f"is placed in {sorted(racks)}, which has no room for all {len(alike)}"
            yield Finding("T in a full rack", scene.now, task.key, "", says)


def find_astray_victims(scene: Scene, asks: Waiter, node: str) -> Iterator[Finding]:
    """For an ask whose group requires a rack they leave where others of it run or hold room; if nobody does, where all
    that wait find room once one more place is free (B.10, when victims are told).
    """
    task = asks.tasks[0]
    if not task.in_rack or len(asks.tasks) > 1:
        return
    waits, runs = members_of(scene, task)
    theirs = racks_of(scene, [*runs.values(), *(claim.node for claim in claims_of_others(scene, task))])
    rack = scene.nodes[node].rack
    stays = {key: where for key, where in scene.running.items() if key not in scene.leaving}
    alike = [other for other in waits if other.amounts == task.amounts and other.key != task.key]
    if theirs:
        wrong = "" not in theirs and rack not in theirs
    else:
        wrong = not rack or not _has_room(replace(scene, claims=(), running=stays, leaving={}), alike, rack)
    if wrong:
        says = f"victims leave on {node} in {rack or 'no rack'}, where its group cannot run"
        yield Finding("2 victims in a wrong rack", scene.now, task.key, "", says)


def find_vain_victims(scene: Scene, asks: Waiter, victims: Collection[str]) -> Iterator[Finding]:
    """Nobody leaves for an ask that its limits keep back (rule 2, when victims are told).

    Limits of users, groups and applications and `stateaware` would let all of it be placed now, and every max on its
    path once its victims have left; a queue above its max already gets no fuller.
    """
    for bound in amounts_refused(scene, asks, doubt=False):
        if not bound.of_queue:
            says = f"the {bound.name} keeps it back, and {len(victims)} leave for it"
            yield Finding("2 victims against a limit", scene.now, asks.name, "", says)
    for what in applications_refused(scene, asks, doubt=False):
        yield Finding("2 victims against a limit", scene.now, asks.name, "", f"{what} keeps it back")
    gone = set(victims) | set(scene.leaving)
    later = replace(scene, leaving={}, running={k: v for k, v in scene.running.items() if k not in gone})
    for bound in amounts_refused(later, asks, doubt=False):
        for t in asks.types() if bound.of_queue else ():
            if t not in bound.most:
                continue
            after = used_below(later, bound, t, asks, doubt=False) + asks.amount(t)
            before = used_below(scene, bound, t, asks, doubt=False)
            if after > bound.most[t] and (before <= bound.most[t] or after > before):
                says = f"the {bound.name} would not admit it: {after} of {bound.most[t]} {t}"
                yield Finding("2 victims against a max", scene.now, asks.name, "", says)


def find_hopeless_claims(scene: Scene) -> Iterator[Finding]:
    """A claim is made, and lasts, only for what can come true (rules 2 and 5, quiet points).

    On a node in service where capacity less foreign load and pods that must run there leaves room; a saved one where
    the shim does not refuse it, while no limit keeps its holder back, and what one account saves is within its limits.
    Asks that must run somewhere are left out of the latter: each of them may preempt at once. Who requires a rack holds
    room in one where the group may stand (B.7).
    """
    for claim in scene.claims:
        holder, task = scene.holder(claim), scene.waiting.get(claim.key)
        if holder is None or task is None or claim.node not in scene.nodes:
            continue
        for kind, says in (*_faults(scene, claim, holder, task), *_find_rack_faults(scene, claim, holder, task)):
            yield Finding(kind, scene.now, claim.key, "", f"holds {claim.node}, {says}")


def _faults(scene: Scene, claim: Claim, holder: Waiter, task: Task) -> Iterator[tuple[str, str]]:
    if scene.nodes[claim.node].drained and task.required_node != claim.node:
        yield "5 claim on a drained node", "which is drained"
    elif not find_places(_ended(scene, task), Waiter((_plain(task),)), among=[claim.node]):
        whose = ", of an ask that must run there" if task.required_node else ""
        yield f"2 claim that no end helps{whose}", "which can never hold it"
    if claim.firm:
        return
    # Whether one that must run there may do so is asked when there is room for it.
    if claim.node in task.refused and not task.required_node:
        yield "2 claim on a refused node", "where the shim refuses it"
    kept = [bound.name for bound in amounts_refused(scene, holder, doubt=False)]
    kept += applications_refused(scene, holder, doubt=False)
    if kept:
        yield "5 claim below a limit", f"although {kept[0]} keeps it back"
        return
    if task.required_node:
        return
    known = [other for other in scene.claims if other.key in scene.waiting]
    saved = {other.key: scene.waiting[other.key] for other in known if not other.firm and other.node}
    for bound in bounds(scene, task.application):
        ours = [other for other in saved.values() if bound.counts(other.application) and not other.required_node]
        for t in holder.types():
            total = used_below(scene, bound, t, holder, doubt=False) + sum(o.amounts.get(t, 0) for o in ours)
            if t in bound.most and total > bound.most[t]:
                yield "2 claims above a limit", f"and with others of the {bound.name} it comes to {total}"
        names = {other.application for other in ours if scene.is_new(other.application)}
        names |= {other.application for other, _ in scene.running.values() if bound.counts(other.application)}
        owns = [scene.waiting[c.key] for c in known if c.firm] + [other for other, _ in scene.running.values()]
        owns_slot = any(other.application == task.application for other in owns)
        if scene.is_new(task.application) and not owns_slot and 0 < bound.applications < len(names):
            yield "2 claims above maxapplications", f"and {len(names)} applications of the {bound.name} run or hold"


def _find_rack_faults(scene: Scene, claim: Claim, holder: Waiter, task: Task) -> Iterator[tuple[str, str]]:
    """A unit has all its places in one rack. A single ask saves in a rack where others of its group run or have a firm
    claim; while there are none, where others of it save; if there are none of these either, in one that could hold all
    of its size in the group that wait."""
    if not task.in_rack:
        return
    rack = scene.nodes[claim.node].rack
    if not rack:
        if not claim.firm:
            yield "2 claim in no rack", "which is in no rack"
        return
    waits, runs = members_of(scene, task)
    others = claims_of_others(scene, task)
    if len(holder.tasks) > 1:
        racks = racks_of(scene, [other.node for other in scene.holds(holder, firm=claim.firm) if other.node])
        if len(racks) > 1:
            yield "2 places in several racks", f"and places of the gang are in {sorted(racks)}"
    elif not claim.firm:
        firm = [other.node for other in others if other.firm]
        theirs = racks_of(scene, [*runs.values(), *firm] or [other.node for other in others])
        alike = [other for other in waits if other.amounts == task.amounts]
        if theirs and not theirs & {rack, ""}:
            yield "2 claim in another rack", f"in {rack}, and its group is in {sorted(theirs)}"
        elif not theirs and not _has_room(emptied(scene), alike, rack):
            yield "2 claim in a small rack", f"in {rack}, which could never hold all {len(alike)}"


def find_idle_line(scene: Scene) -> Iterator[Finding]:
    """Saved claims are made in one line, from those whom nobody comes before, the one that has waited longest first.

    So the first in line whom some choice of nodes in service could hold when all others have ended, beside those who
    must run there and whatever is saved, does not stand there, older than 2 s, without room and kept back by nothing
    else: whoever is behind it loses a claim that is in its way under a bound or of its account (rule 5, quiet points).
    Gangs are judged where nobody saves room on nodes, because one gang of a partition does so at a time. Of equal asks
    that came together it is enough that one saves; and so it is of a group that requires a rack.
    """
    saved = tuple(claim for claim in scene.claims if claim.node and not claim.firm)
    for waiter in sorted(scene.waiters(), key=lambda w: (w.since, w.name)):
        if scene.now - waiter.since <= AGE_S or waiter.required or _gathers(scene, waiter):
            continue
        if _leaves_whole(scene, waiter):
            continue
        if len(waiter.tasks) > 1 and (saved or not built.GANGS_SAVE_PLACES):
            continue
        if scene.holds(waiter, firm=True) or scene.holds(waiter, firm=False):
            continue
        others = [other for other in scene.waiters() if other.name != waiter.name]
        same = [other for other in others if _comes_with(waiter, other)]
        if any(not _is_earlier(scene, waiter, other) for other in others if other not in same):
            continue
        beside = {other.name for other in same} & {claim.key for claim in scene.claims}
        if beside or (waiter.in_rack and claims_of_others(scene, waiter.tasks[0])):
            continue
        if may_be_refused(scene, waiter):
            continue
        later = replace(emptied(scene, waiter.application, asks=True), claims=saved)
        if find_places(scene, waiter) is None and find_places(later, waiter, saved={claim.key for claim in saved}):
            kind = "5 no room saved for a gang" if len(waiter.tasks) > 1 else "5 no room saved"
            kind = "5 behind the line" if saved else kind
            says = f"is first in line and saves nothing, but {[claim.key for claim in saved]} do"
            yield Finding(kind, scene.now, waiter.name, "", says)


def find_unrest(scene: Scene, last: int) -> Iterator[Finding]:
    """With fixed demand it goes quiet, lapses excepted (at each decision). *last*: when demand changed last."""
    if scene.now - last > REST_S:
        says = f"there are still decisions {scene.now - last} s after demand has changed"
        yield Finding("5 never quiet", scene.now, "", "", says)


def find_endless(scene: Scene, slices: int) -> Iterator[Finding]:
    """Decisions do not go round in a circle: a second is done after far fewer slices than *slices*."""
    yield Finding("5 never quiet", scene.now, "", "", f"is not done after {slices} slices of one second")


def _ended(scene: Scene, task: Task) -> Scene:
    """Returns *scene* when all have ended for whom *task* may wait: if it must run somewhere, others that must, too."""
    return replace(scene, running={}, claims=()) if task.required_node else emptied(scene)


def _plain(task: Task) -> Task:
    """Returns *task* as if the shim refused it nowhere and it required no rack."""
    return replace(task, refused=frozenset(), in_rack=False)


def _has_room(scene: Scene, tasks: Collection[Task], rack: str) -> bool:
    """Tells whether there is room for all *tasks* in *rack*, whatever the shim refuses."""
    nodes = dict(nodes_by_rack(scene)).get(rack, [])
    return find_nodes(scene, Waiter(tuple(map(_plain, tasks))), (), nodes) is not None if tasks else True


def _comes_with(waiter: Waiter, other: Waiter) -> bool:
    """Tells whether both are single asks that differ in nothing but their keys."""
    one, two = waiter.tasks[0], other.tasks[0]
    return len(waiter.tasks) == len(other.tasks) == 1 and replace(two, key=one.key) == one


def _equals(task: Task, other: Task) -> bool:
    return other.key != task.key and replace(other, key=task.key, created=task.created) == task


def _sum(tasks: Collection[Task], t: str) -> int:
    return sum(task.amounts.get(t, 0) for task in tasks)


def _takes_firm(scene: Scene, placed: Waiter, places: Mapping[str, str]) -> bool:
    nodes = {claim.node for claim in scene.holds(placed, firm=True)}
    return bool(nodes) and set(places.values()) <= nodes


def _keeps_to_plan(scene: Scene, waiter: Waiter) -> bool:
    """Tells whether *waiter* is a unit for which somebody leaves: it waits for these places alone (B.11)."""
    return len(waiter.tasks) > 1 and bool(scene.holds(waiter, firm=True))


def _others(scene: Scene, placed: Waiter) -> Iterator[Waiter]:
    """Yields who else waits to be served."""
    for waiter in scene.waiters():
        if _keeps_to_plan(scene, waiter):
            continue
        same = waiter.application == placed.application and waiter.tasks[0].group == placed.tasks[0].group
        if not waiter.keys & placed.keys and not (same and placed.tasks[0].group) and not _gathers(scene, waiter):
            yield waiter


def _could_use(scene: Scene, waiter: Waiter, places: Mapping[str, str]) -> bool:
    among = set(places.values()) if len(waiter.tasks) == 1 else ()
    found = find_places(scene, waiter, among=among) or {}
    return bool(set(found.values()) & set(places.values()))


def _gathers(scene: Scene, waiter: Waiter) -> bool:
    """Tells whether *waiter* is part of a group that waits for the others to come.

    Whether it waits from when the last member came or from when none ran any more is not said: the later one counts.
    """
    task = waiter.tasks[0]
    since = max(waiter.since, scene.ended.get((task.application, task.group), 0))
    least = scene.applications[task.application].minimums.get(task.group, 0)
    return not waiter.repairs and len(waiter.tasks) < least and scene.now - since <= GATHER_S


def _leaves_whole(scene: Scene, waiter: Waiter) -> bool:
    """Tells whether all that runs of the gang of *waiter*'s application was asked to leave and has not left yet:
    nothing of the application is placed or saves meanwhile (B.10)."""
    mine = [task for task, _ in scene.running.values() if task.application == waiter.application and task.group]
    return bool(mine) and all(task.key in scene.leaving for task in mine)


def _is_earlier(scene: Scene, one: Waiter, other: Waiter) -> bool:
    """Tells whether *one* stands before *other* in the line of rule 5, beyond doubt.

    Where priorities do not count between the two, it has waited longer, and shows no lower priority from the root down:
    otherwise their order depends on a third, which may come between them by priority.
    """
    if comes_before(scene, one, other) or comes_before(scene, other, one):
        return comes_before(scene, one, other)
    return one.since < other.since and shown_from_root(scene, one) >= shown_from_root(scene, other)


def _goes_by_share(scene: Scene, one: Waiter, other: Waiter) -> bool:
    """Tells whether *one* asks for less of some type than *other*, and may go before it by the share of its queue."""
    smaller = any(one.amount(t) < other.amount(t) for t in other.types())
    return smaller and not comes_before(scene, other, one) and may_have_less(scene, one, other)


def _has_some(scene: Scene, bound: Bound, waiter: Waiter) -> bool:
    """Tells whether some of what *waiter* lacks is free below *bound*, beyond doubt."""
    return any(
        used_below(scene, bound, t, waiter, doubt=True) < bound.most[t]
        for t in waiter.types()
        if t in bound.most and used_below(scene, bound, t, waiter, doubt=False) + waiter.amount(t) > bound.most[t]
    )


def _saving_below(scene: Scene, waiter: Waiter) -> list[Bound]:
    """Returns the limits that alone keep *waiter* back, if each could hold it; else none."""
    certain = amounts_refused(scene, waiter, doubt=False)
    names = {bound.name for bound in certain}
    if names != {bound.name for bound in amounts_refused(scene, waiter, doubt=True)}:
        return []
    could = all(waiter.amount(t) <= b.most[t] for b in certain for t in waiter.types() if t in b.most)
    everybody = {claim.key for claim in scene.claims}
    if not could or applications_refused(scene, waiter, doubt=True):
        return []
    return certain if waiter.keys <= scene.waiting.keys() and find_places(scene, waiter, saved=everybody) else []
