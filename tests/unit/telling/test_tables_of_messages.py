"""An encoder shows every field of a record in the message, or says at once that it cannot."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import pytest

from kornel.core.domain.resources import INT64_MAX, INT64_MIN, Resources
from kornel.core.domain.secrets import HIDDEN
from kornel.core.telling.encoding import kornel_v1
from kornel.core.telling.encoding.messages import Encoders
from kornel.core.telling.encoding.records import ITSELF, PlanError, made
from kornel.core.telling.reader import Reader
from kornel.v1 import configuration_pb2, read_pb2, status_pb2
from tests.scenarios.stage import Stage


class State(NamedTuple):
    """As ``kornel.v1.StateEntry``, with the same names."""

    at_ns: int
    state: str


class Person(NamedTuple):
    name: str


class User(NamedTuple):
    """As ``kornel.v1.UserStatus``, with other names."""

    owner: Person
    held: Resources
    applications: tuple[str, ...]
    secret: str = ""


class Setting(NamedTuple):
    """As ``kornel.v1.SettingChange``."""

    name: str
    before: str
    after: str


class Settings(NamedTuple):
    """Part of ``kornel.v1.PartitionChange``."""

    name: str
    settings: tuple[Setting, ...]


USER = {"user": "owner.name", "used": "held", "application_count": made(len, "applications")}


def test_fields_go_by_their_names() -> None:
    encode = Encoders().add(State, read_pb2.StateEntry)
    assert encode(State(7, "Running")) == read_pb2.StateEntry(at_ns=7, state="Running")


def test_a_table_names_what_is_called_otherwise() -> None:
    encode = Encoders().add(User, status_pb2.UserStatus, USER, left_out=("secret",))
    found = encode(User(Person("ann"), Resources({"vcore": 5}), ("a", "b"), "x"))
    assert found == status_pb2.UserStatus(user="ann", used={"vcore": 5}, application_count=2)


def test_amounts_that_do_not_fit_are_cut() -> None:
    encode = Encoders().add(User, status_pb2.UserStatus, USER, left_out=("secret",))
    found = encode(User(Person("ann"), Resources({"a": 2**70, "b": -(2**70), "c": 1}), ()))
    assert dict(found.used) == {"a": INT64_MAX, "b": INT64_MIN, "c": 1}


def test_a_field_that_goes_nowhere_is_refused() -> None:
    with pytest.raises(PlanError, match="not shown and not listed as left out is secret"):
        Encoders().add(User, status_pb2.UserStatus, USER)


def test_a_field_that_nothing_feeds_is_refused() -> None:
    class Half(NamedTuple):
        at_ns: int

    with pytest.raises(PlanError, match="no source for the message's field state"):
        Encoders().add(Half, read_pb2.StateEntry)
    encode = Encoders().add(Half, read_pb2.StateEntry, unset=("state",))
    assert encode(Half(3)) == read_pb2.StateEntry(at_ns=3)


def test_what_is_listed_wrongly_is_refused() -> None:
    for sources, left_out, said in (
        ({"status": "state"}, (), "the message has no field status"),
        ({"state": "status"}, ("state",), "there is no status"),
        ({}, ("state",), "listed as left out, but shown, is state"),
        ({}, ("colour",), "the record has no field colour"),
    ):
        with pytest.raises(PlanError, match=said):
            Encoders().add(State, read_pb2.StateEntry, sources, left_out=left_out)


@pytest.mark.parametrize("kind", [str, float, bool, tuple[int, ...], Resources])
def test_a_value_of_another_type_is_refused(kind: type) -> None:
    odd = NamedTuple("odd", [("at_ns", kind), ("state", str)])  # noqa: UP014  # made for each of the types
    with pytest.raises(PlanError, match="does not fit into at_ns"):
        Encoders().add(odd, read_pb2.StateEntry)


def test_the_caller_gives_what_is_left_to_it() -> None:
    class Moment(NamedTuple):
        at_ns: int

    encode = Encoders().add(Moment, read_pb2.StateEntry, given=("state",))
    assert encode(Moment(3), state="New") == read_pb2.StateEntry(at_ns=3, state="New")
    with pytest.raises(TypeError, match="state"):
        encode(Moment(3))


def test_lists_of_records_are_encoded_within() -> None:
    counted = {name: made(int) for name in ("added", "removed", "application_count")}
    encode = Encoders().add(Settings, configuration_pb2.PartitionChange, counted)
    found = encode(Settings("p", (Setting("a", "b", "c"),)))
    assert [setting.after for setting in found.settings] == ["c"]
    assert not Encoders().add(Settings, configuration_pb2.PartitionChange, counted)(Settings("p", ())).settings


def test_a_message_within_is_made_of_the_record_itself() -> None:
    class Queue(NamedTuple):
        path: str

    encoders = Encoders()
    unset = [field.name for field in read_pb2.QueueInfo.DESCRIPTOR.fields if field.name != "path"]
    encoders.add(Queue, read_pb2.QueueInfo, unset=unset)
    encode = encoders.add(Queue, read_pb2.GetQueueResponse, {"queue": ITSELF})
    assert encode(Queue("root")).queue.path == "root"


def test_tokens_are_those_of_the_enum() -> None:
    class Severity(StrEnum):
        WARNING = "warning"

    class Colour(StrEnum):
        RED = "red"

    unset = [f.name for f in configuration_pb2.ConfigurationProblem.DESCRIPTOR.fields if f.name != "severity"]
    good = NamedTuple("good", [("severity", Severity)])  # noqa: UP014
    bad = NamedTuple("bad", [("severity", Colour)])  # noqa: UP014
    encode = Encoders().add(good, configuration_pb2.ConfigurationProblem, unset=unset)
    assert encode(good(Severity.WARNING)).severity == configuration_pb2.ConfigurationProblem.SEVERITY_WARNING
    with pytest.raises(PlanError, match="does not fit into severity"):
        Encoders().add(bad, configuration_pb2.ConfigurationProblem, unset=unset)


def test_secrets_of_a_queue_are_hidden() -> None:
    stage = Stage()
    stage.play(["queue root.a db.password=geheim", "register", "node n1"])
    [queue] = Reader(stage.engine)["[rm-1]default"].queues("root.a")
    assert kornel_v1.encode_queue(queue).properties["db.password"] == HIDDEN
