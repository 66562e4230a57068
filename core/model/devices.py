"""The devices of a node, and the allocations that hold them. Rules: docs/devices.md.

Shares of a device are counted in thousandths. An ask for whole devices takes all of each, so it shares them with no
other; several allocations may hold parts of the same device. The sums are updated at every change, so the devices of
one node are enough to tell whether an ask fits there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kornel.core.domain.devices import WHOLE, DeviceRequest, DeviceSpec

if TYPE_CHECKING:
    from kornel.core.model.allocations import Allocation


class Taken(NamedTuple):
    """A device, and the thousandths of it that an allocation is to hold."""

    device_id: str
    share: int


class Device:
    """One device of a node. ``free`` is the number of its thousandths that no allocation holds."""

    __slots__ = ("free", "holders", "kept", "leaving", "spec")

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec
        self.free = WHOLE
        self.holders: dict[Allocation, int] = {}
        """The thousandths that each of its holders holds."""
        self.kept: dict[Allocation, int] = {}
        """The thousandths that each ask which has preempted for the device is to get. No other ask may get these
        meanwhile."""
        self.leaving = False
        """Tells whether its node no longer reports it. No further ask gets it, and it is removed once it has no
        holder."""

    def free_for(self, ask: Allocation | None) -> int:
        """Returns the free thousandths that are not kept for others than *ask*. Who holds the device already, while the
        shim is asked, needs no more of it."""
        if not self.kept:
            return self.free
        return max(0, self.free - self.kept_from(ask))

    def kept_from(self, ask: Allocation | None) -> int:
        """Returns the thousandths that are kept for others than *ask* who do not hold them yet."""
        return sum(share for other, share in self.kept.items() if other is not ask and other not in self.holders)

    def share_for(self, request: DeviceRequest) -> int:
        """Returns the thousandths of it that *request* would take, or 0 if it does not suit the request even when it is
        free."""
        if self.leaving or (request.types and self.spec.type not in request.types):
            return 0
        if request.number:
            return WHOLE
        if request.share:
            return request.share
        memory = self.spec.memory
        return -(-request.memory * WHOLE // memory) if memory >= request.memory else 0

    def __repr__(self) -> str:
        return f"Device({self.spec.device_id}, {self.free} free)"


class NodeDevices:
    """All devices of one node, by ID in the order of the report."""

    __slots__ = ("devices",)

    def __init__(self, specs: Iterable[DeviceSpec]) -> None:
        self.devices: dict[str, Device] = {spec.device_id: Device(spec) for spec in specs}

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices.values())

    def has_room(self, request: DeviceRequest, ask: Allocation | None = None) -> bool:
        """Tells whether an ask for *request* finds its devices here now. *ask* is that ask, if devices may be kept for
        it."""
        if request.linked:
            return self.count_room(request, ask) > 0
        # The search for a node asks this for each node, so it counts no further than necessary.
        missing = request.number or 1
        for device in self.devices.values():
            if device.free and 0 < device.share_for(request) <= device.free_for(ask):
                missing -= 1
                if not missing:
                    return True
        return False

    def could_hold(self, request: DeviceRequest) -> bool:
        """Tells whether an ask for *request* would find its devices here if none were held."""
        return self.count_empty(request) > 0

    def count_empty(self, request: DeviceRequest) -> int:
        """Returns the number of asks for *request* that would find their devices here if none were held."""
        return self._count_asks([(device, WHOLE) for device in self], request)

    def count_room(self, request: DeviceRequest, ask: Allocation | None = None) -> int:
        """Returns the number of asks for *request* that find their devices here now."""
        return self._count_asks([(device, device.free_for(ask)) for device in self], request)

    def has_room_in_part(self, request: DeviceRequest) -> bool:
        """Tells whether an ask for a part of a device finds it on a device of which others hold a part already."""
        return any(device.free < WHOLE and 0 < device.share_for(request) <= device.free_for(None) for device in self)

    def has_room_without(
        self, leaving: Iterable[Allocation], request: DeviceRequest, ask: Allocation | None = None
    ) -> bool:
        """Tells whether an ask for *request* finds its devices here once the allocations *leaving* have given up
        theirs."""
        gone = set(leaving)
        free = [(device, _free_without(device, gone, ask)) for device in self]
        return self._count_asks(free, request) > 0

    def keep(self, ask: Allocation, names: Iterable[str]) -> None:
        """Keep exactly the devices called *names* for *ask*, so that no other ask gets them."""
        request = ask.shape.devices
        kept = set(names)
        for device in self:
            device.kept.pop(ask, None)
            if request is not None and device.spec.device_id in kept:
                device.kept[ask] = device.share_for(request)

    def copy_unkept(self, asks: Iterable[Allocation]) -> NodeDevices:
        """Returns a copy of the devices, of which none are kept for *asks*."""
        copy = self.copy()
        for ask in asks:
            copy.keep(ask, ())
        return copy

    def find_missing(self, ask: Allocation, number: int) -> float:
        """Returns the part, between 0 and 1, that is not free yet of the *number* devices that *ask* saves here."""
        shares = [(device.kept[ask], device.free_for(ask)) for device in self if ask in device.kept]
        return 1 - sum(min(share, free) / share for share, free in shares) / number

    @staticmethod
    def _count_asks(free: Sequence[tuple[Device, int]], request: DeviceRequest) -> int:
        """Returns the number of asks for *request* that find their devices if the thousandths in *free* are free."""
        if not request.number:
            return sum(left // share for device, left in free if (share := device.share_for(request)))
        usable = [device for device, left in free if left == WHOLE and device.share_for(request)]
        if not request.linked:
            return len(usable) // request.number
        groups: dict[str, int] = {}
        for device in usable:
            name = link_group(device)
            groups[name] = groups.get(name, 0) + 1
        return sum(size // request.number for size in groups.values())

    def book_parts(self, holder: Allocation, taken: Iterable[Taken]) -> None:
        """Book the parts *taken* for *holder*."""
        for device_id, share in taken:
            device = self.devices[device_id]
            device.holders[holder] = share
            device.free -= share

    def put_on_paper(self, taken: Iterable[Taken]) -> None:
        """Count the parts *taken* as used without a holder, in a copy on which a choice is made."""
        for device_id, share in taken:
            self.devices[device_id].free -= share

    def give_back(self, holder: Allocation) -> list[Taken]:
        """Free all parts that *holder* holds, and return them."""
        held: list[Taken] = []
        for device in list(self):
            share = device.holders.pop(holder, 0)
            if share:
                device.free += share
                held.append(Taken(device.spec.device_id, share))
                if device.leaving and not device.holders:
                    del self.devices[device.spec.device_id]
        return held

    def hand_over(self, holder: Allocation, successor: Allocation) -> None:
        """Pass all parts that *holder* holds on to *successor*."""
        for device in self:
            share = device.holders.pop(holder, 0)
            if share:
                device.holders[successor] = share

    def held_by(self, holder: Allocation) -> list[Taken]:
        """Returns the parts that *holder* holds."""
        return [Taken(device.spec.device_id, device.holders[holder]) for device in self if holder in device.holders]

    def report_anew(self, specs: Sequence[DeviceSpec]) -> None:
        """Replace the reported devices by *specs*. A device that is no longer among them stays as long as it is
        held."""
        before = self.devices
        self.devices = {}
        for spec in specs:
            device = before.pop(spec.device_id, None)
            if device is None:
                device = Device(spec)
            device.spec, device.leaving = spec, False
            self.devices[spec.device_id] = device
        for device_id, device in before.items():
            if device.holders:
                device.leaving = True
                self.devices[device_id] = device

    def copy(self) -> NodeDevices:
        """Returns a copy of the devices."""
        written = NodeDevices(())
        for device in self:
            other = written.devices[device.spec.device_id] = Device(device.spec)
            other.free, other.holders, other.leaving = device.free, dict(device.holders), device.leaving
            other.kept = dict(device.kept)
        return written

    def __repr__(self) -> str:
        return f"NodeDevices({list(self)})"


def _free_without(device: Device, gone: set[Allocation], ask: Allocation | None) -> int:
    """Returns the thousandths of *device* that *ask* finds once its holders among *gone* have left."""
    freed = sum(share for holder, share in device.holders.items() if holder in gone)
    return max(0, device.free + freed - device.kept_from(ask))


def link_group(device: Device) -> str:
    """Returns the name of the link group of *device*. A device without links is a group by itself."""
    return f"link {device.spec.link}" if device.spec.link else f"device {device.spec.device_id}"
