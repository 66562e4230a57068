"""Devices as nodes report them and as asks want them: read from texts, and refused with a sentence."""

from __future__ import annotations

import json

import pytest

from kornel.core.domain.devices import (
    DEVICES_ATTRIBUTE,
    GIVEN_TAG,
    MOST_DEVICES,
    DeviceRequest,
    DeviceSpec,
    InvalidDevices,
    read_devices,
    read_wants,
    want_tags,
)
from tests.request_texts import write_devices

GIB = 2**30
EIGHT = tuple(DeviceSpec(f"GPU-{at}", "A100", 80 * GIB, f"nvlink{at // 4}") for at in range(8))


def test_a_report_is_read_as_it_was_written() -> None:
    assert read_devices(write_devices(EIGHT)) == EIGHT
    assert read_devices('[{"id": "0"}]') == (DeviceSpec("0"),)
    assert read_devices("") == read_devices("[]") == ()
    assert write_devices(()) == "[]"
    assert DEVICES_ATTRIBUTE == "kornel.devices"


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("{", "the list of devices is not JSON"),
        ("[" * 100_000, "the list of devices is not JSON"),
        ("{}", "the devices are not a list"),
        ("[1]", "devices[0] is not an object with id, type, memory and link"),
        ('[{"type": "A100"}]', "devices[0].id: is missing"),
        ('[{"id": ""}]', "devices[0].id: is missing"),
        ('[{"id": 7}]', "devices[0].id: '7' is not a name: 1 to 128 letters, digits or . _ : / -"),
        ('[{"id": "a,b"}]', "devices[0].id: 'a,b' is not a name"),
        ('[{"id": "a"}, {"id": "a"}]', "devices[1].id: a occurs twice"),
        ('[{"id": "a", "memory": -1}]', "devices[0].memory: '-1' is not a number of bytes"),
        ('[{"id": "a", "memory": 1.5}]', "devices[0].memory: '1.5' is not a number of bytes"),
        ('[{"id": "a", "memory": true}]', "devices[0].memory: 'True' is not a number of bytes"),
        ('[{"id": "a", "memory": "80Gi"}]', "devices[0].memory: '80Gi' is not a number of bytes"),
        (f'[{{"id": "a", "memory": {2**63}}}]', "devices[0].memory: '9223372036854775808' is not a number of bytes"),
        ('[{"id": "a", "link": "x y"}]', "devices[0].link: 'x y' is not a name"),
        ('[{"id": "a", "links": "x"}]', "devices[0]: 'links' is not one of id, type, memory and link"),
        (json.dumps([{"id": str(at)} for at in range(257)]), f"257 devices are more than {MOST_DEVICES}"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused(text: str, flaw: str) -> None:
    with pytest.raises(InvalidDevices) as refused:
        read_devices(text)
    assert str(refused.value).startswith(flaw)


@pytest.mark.parametrize(
    ("tags", "wants", "words"),
    [
        ({"kornel.gpu.count": "2"}, DeviceRequest(2), "2 whole devices"),
        ({"kornel.gpu.count": "1"}, DeviceRequest(1), "1 whole device"),
        (
            {"kornel.gpu.count": "4", "kornel.gpu.link": "same", "kornel.gpu.type": "A100"},
            DeviceRequest(4, linked=True, types=("A100",)),
            "4 whole devices of type A100, in one link group",
        ),
        ({"kornel.gpu.fraction": "0.25"}, DeviceRequest(share=250), "0.25 of a device"),
        ({"kornel.gpu.fraction": ".5"}, DeviceRequest(share=500), "0.5 of a device"),
        ({"kornel.gpu.fraction": "0.005"}, DeviceRequest(share=5), "0.005 of a device"),
        ({"kornel.gpu.memory": "16Gi"}, DeviceRequest(memory=16 * GIB), "16Gi of a device"),
        ({"kornel.gpu.memory": "1000"}, DeviceRequest(memory=1000), "1000 of a device"),
        ({"kornel.gpu.memory": "16G"}, DeviceRequest(memory=16 * 10**9), "15625000Ki of a device"),
        (
            {"kornel.gpu.fraction": "0.5", "kornel.gpu.type": "T4, A10,T4"},
            DeviceRequest(share=500, types=("T4", "A10")),
            "0.5 of a device of type T4 or A10",
        ),
    ],
)
def test_wants_are_read_from_tags(tags: dict[str, str], wants: DeviceRequest, words: str) -> None:
    found = read_wants([("note", "x"), *tags.items()])
    assert found == wants
    assert found is not None
    assert found.describe_request() == words


def test_nothing_is_wanted_without_tags() -> None:
    assert read_wants([]) is None
    assert read_wants([("kornel.gpu", "1"), ("note", "x")]) is None


def test_devices_that_are_held_are_no_part_of_the_demand() -> None:
    found = read_wants([("kornel.gpu.count", "2"), (GIVEN_TAG, "g0,g3")])
    assert found is not None
    assert found.given == ("g0", "g3")
    assert found.demand == DeviceRequest(2)
    assert read_wants([("kornel.gpu.count", "2")]) == found.demand


@pytest.mark.parametrize(
    ("tags", "flaw"),
    [
        ({"kornel.gpu.count": "0"}, "kornel.gpu.count is '0', not 1 to 256"),
        ({"kornel.gpu.count": "257"}, "kornel.gpu.count is '257', not 1 to 256"),
        ({"kornel.gpu.count": "one"}, "kornel.gpu.count is 'one', not 1 to 256"),
        ({"kornel.gpu.fraction": "1"}, "kornel.gpu.fraction is '1', not a fraction from 0.001 to 0.999"),
        ({"kornel.gpu.fraction": "0.0001"}, "kornel.gpu.fraction is '0.0001', not a fraction"),
        ({"kornel.gpu.fraction": "0.000"}, "kornel.gpu.fraction is '0.000', not a fraction"),
        ({"kornel.gpu.memory": "-1Gi"}, "kornel.gpu.memory is '-1Gi', not an amount of bytes such as 16Gi"),
        ({"kornel.gpu.memory": "9999999999Ti"}, "kornel.gpu.memory is '9999999999Ti', not an amount of bytes"),
        (
            {"kornel.gpu.count": "1", "kornel.gpu.memory": "1Gi"},
            "one of kornel.gpu.count, kornel.gpu.fraction and kornel.gpu.memory has to be given, and",
        ),
        ({"kornel.gpu.link": "same"}, "one of kornel.gpu.count, kornel.gpu.fraction and kornel.gpu.memory has to be"),
        ({"kornel.gpu.count": "2", "kornel.gpu.link": "any"}, "kornel.gpu.link is 'any', not same"),
        ({"kornel.gpu.fraction": "0.5", "kornel.gpu.link": "same"}, "kornel.gpu.link is for whole devices, and kornel"),
        ({"kornel.gpu.count": "1", "kornel.gpu.type": ""}, "kornel.gpu.type is '', not one or several types"),
        ({"kornel.gpu.count": "1", GIVEN_TAG: "g0,g0"}, f"{GIVEN_TAG} is not a list of different devices"),
        ({"kornel.gpu.count": "1", GIVEN_TAG: ""}, f"{GIVEN_TAG} is not a list of different devices"),
        ({GIVEN_TAG: "g0"}, "one of kornel.gpu.count, kornel.gpu.fraction and kornel.gpu.memory has to be given, and"),
    ],
)
def test_tags_that_make_no_sense_say_why(tags: dict[str, str], flaw: str) -> None:
    found = read_wants(tags.items())
    assert found is not None
    assert found.flaw.startswith(flaw)


def test_tags_are_written_as_they_are_read() -> None:
    tags = want_tags(count=2, linked=True, types=("A100", "H100"))
    assert read_wants(tags) == DeviceRequest(2, linked=True, types=("A100", "H100"))
    assert read_wants(want_tags(fraction="0.125")) == DeviceRequest(share=125)
    assert read_wants(want_tags(memory="8Gi")) == DeviceRequest(memory=8 * GIB)
