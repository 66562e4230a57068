"""The judgement of each message of the core, as it arrives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.e2e.gang_judge.exact_plans import (
    Plan,
    breaks_minimum,
    find_entitlement,
    find_plan,
    is_plan,
    keeps_guarantees,
    list_candidates,
    list_parcels,
)
from tests.e2e.gang_judge.shim_books import WHOLE, Application, Books, Task, add_up, path_of


@dataclass
class Decision:
    """Victims that one message names for one asking application, or for one of its asks."""

    application: str
    ask: str
    is_unit: bool
    plan: int = 0
    victims: list[str] = field(default_factory=list)


def judge_victims(books: Books, decision: Decision, held: Mapping[str, Iterable[Task]] | None) -> list[str]:
    """Returns what is wrong with *decision*, by the books before it. *held*: what is held by age, where no other
    preemption is under way; ``None``: another one is, so only the laws are judged."""
    application = books.applications.get(decision.application)
    if application is None:
        return [f"victims for {decision.application}, which is gone"]
    victims = [task for key in decision.victims if (task := books.find(key)) is not None]
    if len(victims) != len(decision.victims) or not all(task.stays for task in victims):
        return [f"victims that do not run: {decision.victims}"]
    asked = books.find(decision.ask)
    members = application.list_unit() if decision.is_unit else [asked] if asked else []
    if not members or any(task.node for task in members):
        return [f"victims for {decision.ask}, which does not wait"]
    faults = []
    if not all(member.ask.allow_preempt_other for member in members):
        faults.append(f"{decision.ask} may not preempt")
    for task in victims:
        other = books.applications[task.ask.application_id]
        if other.name == application.name or other.queue == application.queue:
            faults.append(f"{task.key} belongs to the asking queue or application (law 3)")
        if books.queues[other.queue].disabled:
            faults.append(f"{task.key} runs where nobody may be a victim")
        if task.ask.priority > min(member.ask.priority for member in members):
            faults.append(f"{task.key} is more important than the gang (law 6)")
    total = add_up(task.size for task in members)
    if not keeps_guarantees(books, application.queue, total, victims):
        faults.append(f"a queue ends below its guarantee (law 2) by {decision.victims}")
    faults += _judge_gangs_left(books, victims)
    if decision.is_unit and held is not None and not faults:
        others = {name: [task for task in tasks if task not in members] for name, tasks in held.items()}
        faults += _judge_choice(books, application, members, victims, others)
    return faults


def _judge_gangs_left(books: Books, victims: Sequence[Task]) -> list[str]:
    faults = []
    for name in {task.ask.application_id for task in victims}:
        other = books.applications[name]
        here = [task for task in victims if task.ask.application_id == name]
        if other.is_bound and breaks_minimum(other, here) and len(here) < len(other.staying()):
            faults.append(f"gang {name} loses {len(here)} of {len(other.staying())}, and not as a whole")
    return faults


def _judge_choice(
    books: Books,
    application: Application,
    members: Sequence[Task],
    victims: Sequence[Task],
    held: Mapping[str, Iterable[Task]],
) -> list[str]:
    entitlement = find_entitlement(books, application, members)
    if entitlement.refusal:
        return [f"{application.name} preempts, although {entitlement.refusal}"]
    allowed = {task.key for task in list_candidates(books, application, members, entitlement)}
    if wrong := [task.key for task in victims if task.key not in allowed]:
        return [f"{wrong} may not be victims of {application.name}"]
    if not is_plan(books, application, members, entitlement, victims, held):
        return [f"{[task.key for task in victims]} are not enough for {application.name}, or not all needed"]
    for parcel in list_parcels(books, victims):
        rest = [task for task in victims if task not in parcel]
        if is_plan(books, application, members, entitlement, rest, held):
            return [f"{[task.key for task in rest]} of {[task.key for task in victims]} do for {application.name}"]
    best = find_best(books, application, members, held)
    if best is None:
        return [f"{application.name} has a plan that the exact search does not find"]
    opted_out = any(not task.ask.allow_preempt_self for task in victims)
    whole = any(
        books.applications[name].is_bound
        and breaks_minimum(books.applications[name], [task for task in victims if task.ask.application_id == name])
        for name in {task.ask.application_id for task in victims}
    )
    chosen, better = (whole, opted_out), (bool(best.gangs), best.opted_out)
    if chosen > better:
        theirs, ours = sorted(task.key for task in victims), sorted(task.key for task in best.victims)
        return [f"{application.name} takes {theirs} {chosen}, and {ours} {better} would do (gang, opted out)"]
    return []


def find_best(
    books: Books, application: Application, members: Sequence[Task], held: Mapping[str, Iterable[Task]]
) -> Plan | None:
    """Returns a plan of the mildest class: without whole gangs before with them, then without those that opted out."""
    for gangs in (False, True):
        for opted_out in (False, True):
            plan = find_plan(books, application, members, held, opted_out=opted_out, gangs=gangs)
            if plan is not None:
                return plan
    return None


def judge_placements(books: Books, placed: Sequence[Task], held: Mapping[str, Sequence[Task]]) -> list[str]:
    """Returns what is wrong with the books after *placed* were placed by a decision of the core. Who *held* room on a
    node may run there also once it is closed."""
    faults = []
    for task in placed:
        node = books.nodes.get(task.node)
        if node is None or not (node.is_open or task in held.get(task.node, ())):
            faults.append(f"{task.key} is placed on {task.node}, which takes nothing new")
        if (task.key, task.node) in books.refused:
            faults.append(f"{task.key} is placed on {task.node}, which the shim refused")
    for name in {task.node for task in placed} & books.nodes.keys():
        if any(amount < 0 for amount in books.free(name).values()):
            faults.append(f"{name} is overfull: {books.free(name)}")
        faults += judge_devices(books, name)
    for task in placed:
        for queue in path_of(books.applications[task.ask.application_id].queue):
            used, maximum = books.used(queue), books.queues[queue].maximum
            if any(task.size.get(kind, 0) and used.get(kind, 0) > bound for kind, bound in maximum.items()):
                faults.append(f"{queue} uses {used} of {maximum} after {task.key}")
    for name in {task.ask.application_id for task in placed}:
        faults += judge_domains(books, books.applications[name])
    return faults


def judge_devices(books: Books, name: str) -> list[str]:
    """Returns what is wrong with the devices of the node *name*."""
    faults = []
    for device, left in books.free_devices(name).items():
        holders = [task for task in books.on_node(name) if device in task.devices]
        whole = [task.key for task in holders if task.parts == WHOLE]
        if left < 0 or (whole and len(holders) > 1):
            faults.append(f"device {device} of {name} is held by {[task.key for task in holders]}")
    for task in books.on_node(name):
        wish = task.ask.devices
        if wish is None:
            continue
        links = {books.nodes[name].devices.get(device, "?") for device in task.devices}
        if len(task.devices) != max(1, wish.count) or "?" in links:
            faults.append(f"{task.key} on {name} wants {wish} and has {task.devices}")
        elif wish.linked and wish.count > 1 and (len(links) > 1 or links == {""}):
            faults.append(f"{task.key} on {name} wants linked devices and has {task.devices}")
    return faults


def judge_domains(books: Books, application: Application) -> list[str]:
    """Returns what is wrong with the domains of groups that require one."""
    faults: list[str] = []
    for group in application.asked:
        here = [task for task in application.running() if task.ask.task_group == group]
        wishes = [task.ask.topology for task in here if task.ask.topology is not None and task.ask.topology.required]
        if not wishes or wishes[0] is None or wishes[0].required not in books.levels or application.disturbed:
            continue
        counted: dict[object, int] = {}
        for task in here:
            if task.node in books.nodes:
                domain = books.domain(task.node, wishes[0].required)
                counted[domain] = counted.get(domain, 0) + 1
        size = wishes[0].slice_size or application.asked[group]
        if None in counted or sum(-(-n // size) for n in counted.values()) > -(-application.asked[group] // size):
            faults.append(f"{application.name}/{group} requires {wishes[0]} and stands in {counted}")
    return faults


def judge_wholeness(application: Application) -> list[str]:
    """Returns what is wrong if some members run, but fewer than a minimum."""
    if not application.is_unit or application.disturbed or not application.staying():
        return []
    return [
        f"{application.name} has {here} of {application.minimum_of(group)} in {group}"
        for group in application.asked
        if (here := sum(task.ask.task_group == group for task in application.staying())) < application.minimum_of(group)
    ]
