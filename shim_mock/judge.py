"""A judge that compares a run with the expectations of its scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kornel.shim_mock.cluster import SimulatedCluster
from kornel.shim_mock.expectations import Expectation, Kind, Verdict
from kornel.shim_mock.model.lifecycle import TaskState
from kornel.shim_mock.quantities import describe_amounts, describe_share
from kornel.v1 import status_pb2

_UNTOLD: Final = "the core does not tell: it has no StatusService, or this shim has no permission to read and to audit"

# More differences would only distract from the first ones.
SHOWN = 3


class Judge:
    """The verdicts of one run.

    Call :meth:`look` whenever something has changed, and :meth:`close` at the end.
    """

    def __init__(self, expectations: tuple[Expectation, ...], cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._expectations = expectations
        self._verdicts: dict[Expectation, Verdict] = {}

    @property
    def undecided(self) -> list[Expectation]:
        """The expectations with a time limit that are not judged yet."""
        return [e for e in self._expectations if e.within_s is not None and e not in self._verdicts]

    def look(self, now_s: float, *, quiet: bool = False) -> None:
        """Judge the expectations that can be judged at *now_s* (real seconds since the start).

        *quiet* says that the core has sent nothing for a while. A queue then also counts as having its guarantee if no
        preemption could give it more.
        """
        for expectation in self.undecided:
            assert expectation.within_s is not None
            began_s = self._began_s(expectation)
            if began_s is None:
                continue
            took_s = now_s - began_s
            if took_s <= expectation.within_s and self._is_met(expectation, quiet=quiet):
                self._add_verdict(expectation, True, f"after {took_s:.2f} s; {self._describe_numbers(expectation)}")
            elif took_s > expectation.within_s:
                self._add_verdict(expectation, False, f"not in time; {self._describe_numbers(expectation)}")

    def next_deadline_s(self) -> float | None:
        """Returns the time, in real seconds since the start, at which the time limit of the next expectation ends."""
        deadlines = [
            began_s + expectation.within_s
            for expectation in self.undecided
            if expectation.within_s is not None and (began_s := self._began_s(expectation)) is not None
        ]
        return min(deadlines, default=None)

    def close(self, status: status_pb2.GetStatusResponse | None) -> list[Verdict]:
        """Returns the verdicts on all expectations, in the scenario's order. *status* is None if the core does not
        report one."""
        for expectation in self._expectations:
            if expectation not in self._verdicts:
                self._judge_at_end(expectation, status)
        return [self._verdicts[expectation] for expectation in self._expectations]

    def _add_verdict(self, expectation: Expectation, met: bool, detail: str) -> None:
        self._verdicts[expectation] = Verdict(expectation, met, detail)

    def _began_s(self, expectation: Expectation) -> float | None:
        accounts = self._cluster.accounts.queues
        queue = "root" if expectation.kind is Kind.ALL_PLACED else expectation.queue
        return accounts[queue].first_ask_s if queue in accounts else None

    def _is_met(self, expectation: Expectation, *, quiet: bool) -> bool:
        accounts = self._cluster.accounts.queues
        match expectation.kind:
            case Kind.REACHES_GUARANTEED:
                account = accounts[expectation.queue]
                # The second check is expensive, so it is done only while nothing else happens.
                return account.is_served or (
                    quiet and not account.unsubmitted and self._cluster.is_stranded(expectation.queue)
                )
            case Kind.ALL_PLACED:
                return not accounts["root"].waiting and not accounts["root"].unsubmitted
            case Kind.PREEMPTED_AT_LEAST:
                return accounts[expectation.queue].preempted >= expectation.count
            case _:
                raise AssertionError(f"{expectation.kind} has no time limit")

    def _describe_numbers(self, expectation: Expectation) -> str:
        account = self._cluster.accounts.queues[expectation.queue or "root"]
        match expectation.kind:
            case Kind.REACHES_GUARANTEED:
                guaranteed = account.limits.guaranteed.items()
                amounts = ", ".join(
                    describe_share(kind, account.usage_net_of_victims(kind), most) for kind, most in guaranteed
                )
                hopeless = f", {account.hopeless} fit no node" if account.hopeless else ""
                waiting = account.waiting - account.hopeless
                stranded = ""
                if waiting and not account.is_served and self._cluster.is_stranded(expectation.queue):
                    stranded = " for nodes that the queue's own or protected tasks block"
                return f"{amounts}; {waiting} waiting{stranded}{hopeless}"
            case Kind.ALL_PLACED:
                return f"{account.waiting} waiting, {account.unsubmitted} not submitted"
            case _:
                return f"{account.preempted} preempted"

    def _judge_at_end(self, expectation: Expectation, status: status_pb2.GetStatusResponse | None) -> None:
        """Judge an expectation that can only be judged at the end."""
        account = self._cluster.accounts.queues.get(expectation.queue)
        preempted = account.preempted if account is not None else 0
        match expectation.kind:
            case Kind.NEVER_BELOW_GUARANTEED:
                below = [e for e in self._cluster.accounts.below_guarantee if e.queue == expectation.queue]
                detail = f"{preempted} preempted"
                if below:
                    first = below[0]
                    amounts = describe_share(first.resource_type, first.left, first.guaranteed)
                    detail = f"{amounts} by preempting {first.key}; {_count_times(len(below))} in all"
                self._add_verdict(expectation, not below, detail)
            case Kind.PREEMPTED_AT_MOST:
                self._add_verdict(expectation, preempted <= expectation.count, f"{preempted} preempted")
            case Kind.PREEMPTED_AT_LEAST:
                self._add_verdict(expectation, preempted >= expectation.count, f"{preempted} preempted")
            case Kind.ENDS_WITHIN_MAX:
                self._add_verdict(expectation, *self._within_max(expectation.queue))
            case Kind.NOTICED_AT_LEAST:
                noticed = account.noticed if account is not None else 0
                self._add_verdict(expectation, noticed >= expectation.count, f"{noticed} noticed")
            case Kind.SURVIVES:
                fate = self._cluster.fates[expectation.application]
                detail = f"{fate.preempted} preempted{' before it failed' if fate.failed else ', still running'}"
                self._add_verdict(expectation, fate.preempted >= expectation.count, detail)
            case Kind.FAILS:
                fate = self._cluster.fates[expectation.application]
                self._add_verdict(
                    expectation, fate.failed, f"failed {_count_times(fate.failures)}, {fate.preempted} preempted"
                )
            case Kind.NO_LAW_VIOLATIONS:
                self._add_verdict(expectation, *self._check_laws(status))
            case Kind.NOTHING_LOST:
                differences = list(self._find_differences(status))
                self._add_verdict(
                    expectation, not differences, _describe_differences(differences) or self._describe_totals()
                )
            case _:
                self._add_verdict(expectation, False, "the run ended before")

    def _within_max(self, queue: str) -> tuple[bool, str]:
        account = self._cluster.accounts.queues.get(queue)
        if account is None or not account.limits.maximum:
            return False, "no max in force"
        most = account.limits.maximum
        held = ", ".join(
            describe_share(kind, account.usage_net_of_victims(kind), amount) for kind, amount in most.items()
        )
        return all(account.usage_net_of_victims(kind) <= amount for kind, amount in most.items()), held

    def _check_laws(self, status: status_pb2.GetStatusResponse | None) -> tuple[bool, str]:
        if status is None:
            return False, _UNTOLD
        checks = sum(partition.law_checks for partition in status.partitions)
        violations = sum(partition.law_violations for partition in status.partitions)
        broken = sum(partition.invariant_violations for partition in status.partitions)
        detail = f"plans checked: {checks}, that broke a law: {violations}; accounting checks failed: {broken}"
        # If there was preemption without a single check, the laws were not checked at all.
        looked = checks > 0 or not self._cluster.accounts.preemptions
        return looked and not violations and not broken, detail

    def _describe_totals(self) -> str:
        count = self._cluster.count_tasks()
        return ", ".join(f"{count[state]} {state}" for state in TaskState if count[state])

    def _find_differences(self, status: status_pb2.GetStatusResponse | None) -> Iterator[str]:
        """Yields the differences between the accounts of the core and of the cluster. Every ask has to be placed,
        pending or ended in both."""
        cluster = self._cluster
        yield from (f"anomaly: {anomaly}" for anomaly in cluster.anomalies)
        if status is None:
            yield _UNTOLD
            return
        partition = next((p for p in status.partitions if p.name.endswith("]default")), None)
        if partition is None:
            yield "the core has no partition default"
            return
        pairs = [
            ("nodes", partition.node_count, cluster.node_count),
            ("pending asks", partition.pending_ask_count, cluster.count_tasks()[TaskState.WAITING]),
            ("allocations", partition.allocation_count, cluster.holding()),
        ]
        yield from (f"{what}: core {core}, cluster {own}" for what, core, own in pairs if core != own)
        for queue in partition.queues:
            if (account := cluster.accounts.queues.get(queue.path)) is None:
                continue
            for what, core_amounts, own_amounts in (
                ("used", queue.used, account.used),
                ("pending", queue.pending, account.pending),
                ("preempting", queue.preempting, account.preempting),
            ):
                told, mine = _drop_zeros(core_amounts), _drop_zeros(own_amounts)
                if told != mine:
                    yield f"{queue.path} {what}: core {describe_amounts(told)}, cluster {describe_amounts(mine)}"
            # A core that was restarted counts from 0 again.
            if queue.leaf and not cluster.registration.count and queue.preempted_allocations != account.preempted:
                yield f"{queue.path} preempted: core {queue.preempted_allocations}, cluster {account.preempted}"


def _count_times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _drop_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    return {kind: amount for kind, amount in sorted(amounts.items()) if amount}


def _describe_differences(differences: list[str]) -> str:
    more = f"; {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
    return "; ".join(differences[:SHOWN]) + more
