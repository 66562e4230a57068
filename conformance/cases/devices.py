"""Cases about devices: nodes report them, asks want whole ones, parts of one or linked ones, and the core says which
ones each allocation holds.

The amounts of the nodes are never short here, so devices alone decide.
"""

from __future__ import annotations

from kornel.conformance import messages
from kornel.conformance.bench import Bench
from kornel.conformance.case import case
from kornel.conformance.entries import (
    Entry,
    Kind,
    new,
    node_accepted,
    node_rejected,
    rejected,
    released,
    updated,
)
from kornel.conformance.outcome import Skipped, check
from kornel.shim_client.asks import Device, Devices, devices_attribute, devices_of
from kornel.si.v1 import si_pb2 as si

LINKED_PAIRS = (Device("0", link="a"), Device("1", link="a"), Device("2", link="b"), Device("3", link="b"))
GIB = 2**30


def node_with(
    *devices: Device, node: str = "n1", action: si.NodeInfo.ActionFromRM.ValueType = si.NodeInfo.CREATE
) -> si.NodeInfo:
    """Returns a node entry that reports *devices*."""
    return messages.node_info(node, action, {"vcore": messages.NODE_VCORE}, devices_attribute(devices))


def ask(key: str, wants: Devices, *, node: str = "", given: str = "") -> si.Allocation:
    """Returns an ask for devices, or, with *node*, an allocation that runs there with the devices *given*."""
    tags = wants.encode_tags() | ({"kornel.gpu.devices": given} if given else {})
    return messages.allocation(key, 100, node=node, tags=tags)


async def start_with(bench: Bench, *devices: Device) -> None:
    """Registers, creates n1 with *devices* and adds app. Raises Skipped on a core that does not read devices."""
    await bench.reg()
    unreadable = messages.node_info("probe", capacity={"vcore": 1}, attributes={"kornel.devices": "no list"})
    await bench.send_nodes(unreadable)
    if (
        await bench.expect_one_of(node_accepted("probe"), node_rejected("probe", "invalid-devices"))
    ).kind is Kind.NODE_ACCEPTED:
        raise Skipped("needs a core that reads the devices of nodes")
    await bench.send_nodes(node_with(*devices))
    await bench.expect(node_accepted("n1"))
    await bench.app()


async def place_asks(bench: Bench, *asks: si.Allocation) -> list[tuple[str, ...]]:
    """Sends the first asks of app one after the other, expects each to be placed on n1, and returns the devices of
    each."""
    await bench.send(asks[0])
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"))
    held = [held_by(*await bench.expect(new(asks[0].allocationKey, "n1")))]
    for one in asks[1:]:
        await bench.send(one)
        held.append(held_by(*await bench.expect(new(one.allocationKey, "n1"))))
    return held


def held_by(entry: Entry) -> tuple[str, ...]:
    """Returns the devices that a ``new`` entry names."""
    assert isinstance(entry.message, si.Allocation), "it is an entry about an allocation"
    return devices_of(entry.message)


def one_held_by(entry: Entry) -> tuple[str, ...]:
    """Returns the only device that a ``new`` entry names."""
    held = held_by(entry)
    check(len(held) == 1, f"expected {entry.key} to hold one device, got {held}")
    return held


@case(173, "a node whose devices cannot be read is refused", rule="scheduling.md 15.1")
async def unreadable_list(bench: Bench) -> None:
    await start_with(bench)
    for listed in ('[{"id":"0"},{"id":"0"}]', '[{"id":"0","memory":-1}]', '[{"id":"0","colour":"red"}]', "{}"):
        refused = messages.node_info("n2", capacity={"vcore": 1}, attributes={"kornel.devices": listed})
        await bench.send_nodes(refused)
        await bench.expect(node_rejected("n2", "invalid-devices"))
    await bench.send_nodes(node_with(Device("0"), node="n2"))
    await bench.expect(node_accepted("n2"))


@case(174, "a whole device has one holder, whose new message names it, and a release gives it back",
      rule="scheduling.md 15.1")  # fmt: skip
async def whole_devices(bench: Bench) -> None:
    await start_with(bench, Device("x"), Device("y"), Device("z"))
    [first, second] = await place_asks(bench, ask("k1", Devices(count=1)), ask("k2", Devices(count=2)))
    check((len(first), len(second)) == (1, 2), f"expected one device and two, got {first} and {second}")
    check({*first, *second} == {"x", "y", "z"}, f"expected different devices of n1, got {first} and {second}")
    await bench.send(ask("k3", Devices(count=1)))
    await bench.expect_silence()
    await bench.send(messages.allocation("plain", 100))
    check(held_by(*await bench.expect(new("plain", "n1"))) == (), "expected no devices where none are wanted")
    await bench.release("k1")
    third = held_by((await bench.expect(released("k1"), new("k3", "n1")))[1])
    check(third == first, f"expected the device {first} that k1 gave back, got {third}")


@case(175, "the message that announces an allocation repeats what it wants", rule="protocol.md 4.4")
async def wants_repeated(bench: Bench) -> None:
    await start_with(bench, Device("0", "A100", 80 * GIB, "a"), Device("1", "A100", 80 * GIB, "a"))
    wants = Devices(count=2, linked=True, types=("A100", "H100"))
    await bench.send(ask("k", wants))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"))
    [told] = await bench.expect(new("k", "n1"))
    assert isinstance(told.message, si.Allocation), "it is an entry about an allocation"
    tags = dict(told.message.allocationTags)
    check(wants.encode_tags().items() <= tags.items(), f"expected {wants.encode_tags()} among the tags, got {tags}")


@case(176, "parts share a device with parts only, and never add up to more than one", rule="scheduling.md 15.1")
async def parts(bench: Bench) -> None:
    await start_with(bench, Device("0"), Device("1"))
    half = Devices(fraction=0.5)
    [first, second] = await place_asks(bench, ask("k1", half), ask("k2", Devices(fraction=0.3)))
    check(len(first) == 1 and first == second, f"expected both parts on one device, got {first} and {second}")
    await bench.send(ask("whole", Devices(count=1)))
    whole = one_held_by(*await bench.expect(new("whole", "n1")))
    check(not {*whole} & {*first}, f"expected a device without parts, got {whole}")
    await bench.send(ask("k3", half), ask("k4", Devices(count=1)))
    await bench.expect_silence()
    await bench.release("k2")
    third = one_held_by((await bench.expect(released("k2"), new("k3", "n1")))[1])
    check(third == first, f"expected {first}, of which half is free, got {third}")
    await bench.release("k1")
    await bench.expect(released("k1"))
    await bench.expect_silence()
    await bench.release("k3")
    fourth = one_held_by((await bench.expect(released("k3"), new("k4", "n1")))[1])
    check(fourth == first, f"expected {first}, of which nobody holds a part any more, got {fourth}")


@case(177, "memory is counted as the part of the device that it is", rule="scheduling.md 15.1")
async def memory(bench: Bench) -> None:
    await start_with(bench, Device("unknown"), Device("small", memory=8 * GIB), Device("0", memory=64 * GIB))
    quarter = Devices(memory="16Gi")
    held = await place_asks(bench, ask("k1", quarter), ask("k2", quarter), ask("k3", Devices(fraction=0.5)))
    check(held == [("0",), ("0",), ("0",)], f"expected two quarters and a half of device 0, got {held}")
    await bench.send(ask("k4", quarter))
    await bench.expect_silence()
    await bench.release("k1")
    await bench.expect(released("k1"), new("k4", "n1"))


@case(178, "linked devices are of one link group, and what is free in several groups does not add up",
      rule="scheduling.md 15.1")  # fmt: skip
async def links(bench: Bench) -> None:
    await start_with(bench, *LINKED_PAIRS, Device("4"))
    both = Devices(count=2, linked=True)
    [first, pair] = await place_asks(bench, ask("k1", Devices(count=1)), ask("k2", both))
    check(first == ("4",), f"expected the device without links, so that pairs stay free, got {first}")
    check({*pair} in ({"0", "1"}, {"2", "3"}), f"expected two devices that are linked, got {pair}")
    await bench.send(ask("k3", Devices(count=1)))
    await bench.expect(new("k3", "n1"))
    await bench.release("k1")
    await bench.expect(released("k1"))
    await bench.send(ask("k4", both))
    await bench.expect_silence()
    await bench.release("k2")
    again = held_by((await bench.expect(released("k2"), new("k4", "n1")))[1])
    check({*again} == {*pair}, f"expected {pair}, got {again}")


@case(179, "an ask whose wish for devices makes no sense is refused", rule="protocol.md 4.4")
async def bad_wants(bench: Bench) -> None:
    await start_with(bench, Device("0"))
    for at, wish in enumerate(
        (
            {"count": "1", "fraction": "0.5"},
            {"count": "0"},
            {"fraction": "1.5"},
            {"memory": "much"},
            {"link": "same"},
            {"fraction": "0.5", "link": "same"},
            {"count": "2", "link": "any"},
        )
    ):
        tags = {f"kornel.gpu.{name}": value for name, value in wish.items()}
        await bench.send(messages.allocation(f"k{at}", 100, tags=tags))
        await bench.expect(rejected(f"k{at}", "invalid-devices"))
    await bench.expect_silence()


@case(180, "an allocation that runs holds the devices that it names, which others then do not get",
      rule="scheduling.md 15.1")  # fmt: skip
async def recovered(bench: Bench) -> None:
    await start_with(bench, Device("0"), Device("1"))
    await bench.send(ask("r1", Devices(count=1), node="n1", given="1"))
    await bench.expect(updated("app", "Accepted"), updated("app", "Running"))
    await bench.expect(new("r1", "n1"))
    await bench.send(
        ask("r2", Devices(fraction=0.5), node="n1", given="1"),
        ask("r3", Devices(count=1), node="n1", given="7"),
        ask("r4", Devices(count=2), node="n1", given="0"),
    )
    await bench.expect_set(*(rejected(key, "invalid-devices") for key in ("r2", "r3", "r4")))
    await bench.send(ask("k1", Devices(count=1)))
    check(held_by(*await bench.expect(new("k1", "n1"))) == ("0",), "expected the device that r1 does not hold")
    await bench.send(ask("r1", Devices(count=1), node="n1", given="0"))
    await bench.expect(rejected("r1", "unchangeable"))


@case(181, "a device that its node no longer reports is given to nobody else", rule="scheduling.md 15.1")
async def report_changes(bench: Bench) -> None:
    await start_with(bench, Device("0"), Device("1"))
    await place_asks(bench, ask("k1", Devices(count=2)))
    await bench.send_nodes(node_with(Device("1"), Device("2"), action=si.NodeInfo.UPDATE))
    await bench.expect_silence()
    await bench.send(ask("k2", Devices(count=2)), ask("k3", Devices(count=1)))
    check(held_by(*await bench.expect(new("k3", "n1"))) == ("2",), "expected the device that is new")
    await bench.send_nodes(messages.node_info("n1", si.NodeInfo.UPDATE, {"vcore": messages.NODE_VCORE + 1}))
    await bench.expect_silence()
    await bench.send(messages.allocation("stays", 100))
    await bench.expect(new("stays", "n1"))
    await bench.release("k1")
    await bench.expect(released("k1"))
    await bench.expect_silence()
    await bench.release("k3")
    last = held_by((await bench.expect(released("k3"), new("k2", "n1")))[1])
    check({*last} == {"1", "2"}, f"expected what the node reports now, got {last}")


@case(182, "a real ask gets the devices of the placeholder that it replaces", rule="scheduling.md 15.1")
async def placeholder_devices(bench: Bench) -> None:
    await start_with(bench, Device("0"), Device("1"))
    placeholder = ask("p", Devices(count=1))
    placeholder.placeholder, placeholder.taskGroupName = True, "workers"
    other = ask("q", Devices(count=1))
    other.placeholder, other.taskGroupName = True, "others"
    await bench.send(placeholder, other)
    await bench.expect(updated("app", "Accepted"))
    told = await bench.expect_set(new("p", "n1"), new("q", "n1"))
    held = {entry.key: one_held_by(entry) for entry in told}
    real = ask("r", Devices(count=1))
    real.taskGroupName = "others"
    await bench.send(real)
    await bench.expect(released("q", si.PLACEHOLDER_REPLACED))
    await bench.release("q", si.PLACEHOLDER_REPLACED)
    got = one_held_by(*await bench.expect(new("r", "n1")))
    check(got == held["q"], f"expected {held['q']}, which q held, got {got}")
    await bench.expect(updated("app", "Running"))
