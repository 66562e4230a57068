"""The event table of rest.md 5, row by row: each row is provoked on the engine, and every field of its events checked.

A row plays *given*, then *when*, in the language of the scenarios. Of what the engine then tells, the events whose
type, change and detail the row is about must be exactly *told*: type, object, change, detail, ``ref=`` reference,
resource and message, in order.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kornel.core.domain.commands import AttachCallbacks
from kornel.core.domain.effects import EventRecorded
from kornel.core.domain.events import EventChange, EventDetail, EventType
from kornel.core.domain.resources import Resources
from tests.scenarios.preemption import monitor_stage
from tests.scenarios.stage import Stage

NEVER_TOLD = {
    EventDetail.REQUEST_ALLOC,
    EventDetail.NODE_OCCUPIED,
    EventDetail.QUEUE_CONFIG,
    EventDetail.QUEUE_ALLOC,
}
"""Defined, but not emitted (rest.md 5)."""


class Row(NamedTuple):
    """``rule``: number in the table, and which part of it. ``about``: ``TYPE CHANGE DETAIL`` separated by commas."""

    rule: str
    given: str
    when: str
    about: str
    told: str


PLACED = "node n1; app A; ask k app=A vcore=2000"
RUNNING = "node n1; app A user=ann; run k app=A node=n1"
GROUP = "queue root.a; limit root.a users=ann groups=dev max={vcore=9000}; node n1; app A user=ann groups=dev"
DYNAMIC = (
    "yaml {partitions: [{name: default, placementrules: [{name: user, create: true}],"
    " queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]}; register"
)
PREEMPTION = (
    "queue root.a guaranteed={vcore=4000}; queue root.b; node n1 vcore=4000;"
    " run v1 queue=root.b node=n1 vcore=2000; run v2 queue=root.b node=n1 vcore=2000;"
    " ask k queue=root.a vcore=2000 other=yes created=0s"
)
SHORT = (
    "queue root.a gang.grace=30s; node n1; node n2 vcore=9000; app A queue=root.a gang={vcore=2000} style=Hard;"
    " run v1 app=A group=g node=n1 vcore=1000; run v2 app=A group=g node=n2 vcore=1000"
)
QUOTA = (
    "partition default quota=on; queue root.a max={f=10} quota.preemption.delay=1; register; node n1 f=100; app A;"
    " run k1 app=A node=n1 f=4; run k2 app=A node=n1 f=4"
)
LOWERED = "partition default quota=on; queue root.a max={f=5} quota.preemption.delay=2; update-config"
BOUND = (
    "queue root.v; queue root.d; node n1 f=20; node n2 f=20; run v1 queue=root.v node=n1 f=15 p=1000;"
    " foreign x node=n1 f=3; ask d queue=root.d f=15 required=n1"
)
GANG = "node n1; app A gang={vcore=1000}; run p app=A node=n1 group=g placeholder"

ROWS = [
    Row("E1 accepted", "node n1", "app A", "APP ADD APP_NEW", "APP A ADD APP_NEW"),
    Row("E1 rejected later", "node n1", "app A queue=root.no", "APP ADD APP_NEW", "APP A ADD APP_NEW"),
    Row("E2 accepted", "app A", "ask k app=A", "APP SET APP_ACCEPTED", "APP A SET APP_ACCEPTED"),
    Row("E2 running", PLACED, "cycle", "APP SET APP_RUNNING", "APP A SET APP_RUNNING"),
    Row("E2 completing", RUNNING, "release k app=A", "APP SET APP_COMPLETING", "APP A SET APP_COMPLETING"),
    Row(
        "E2 completed",
        f"{RUNNING}; release k app=A",
        "at=30s cycle",
        "APP SET APP_COMPLETED",
        "APP A SET APP_COMPLETED",
    ),
    Row(
        "E2 expired",
        f"{RUNNING}; release k app=A; at=30s cycle",
        "at=73h cycle",
        "APP SET APP_EXPIRED",
        "APP A SET APP_EXPIRED",
    ),
    Row(
        "E2 rejected, with its reason",
        "node n1",
        "app A queue=root.no",
        "APP SET APP_REJECT",
        "APP A SET APP_REJECT \"no-queue: queue 'root.no': provided: root.no does not exist, and the rule does not"
        ' create it; there is no root.default"',
    ),
    Row(
        "E2 resuming, with its reason",
        "node n1 vcore=1000; app A gang={vcore=2000} timeout=10s; ask p app=A group=g placeholder; cycle",
        "at=11s cycle",
        "APP SET APP_RESUMING",
        'APP A SET APP_RESUMING "ResourceReservationTimeout"',
    ),
    Row(
        "E2 failing with its reason, and failed",
        "node n1 vcore=1000; app A gang={vcore=2000} timeout=10s style=Hard; ask p app=A group=g placeholder; cycle",
        "at=11s cycle; release p app=A type=TIMEOUT; cycle",
        "APP SET APP_FAILING, APP SET APP_FAILED",
        'APP A SET APP_FAILING "ResourceReservationTimeout"\nAPP A SET APP_FAILED',
    ),
    Row(
        "E3 added",
        "node n1; app A",
        "ask k app=A vcore=2000",
        "APP ADD APP_REQUEST",
        "APP A ADD APP_REQUEST ref=k {vcore=2000}",
    ),
    Row("E3 not for recovered ones", "node n1; app A", "run k app=A node=n1", "APP ADD APP_REQUEST", ""),
    Row("E4 placed", PLACED, "cycle", "APP ADD APP_ALLOC", "APP A ADD APP_ALLOC ref=k {vcore=2000}"),
    Row(
        "E4 recovered",
        "node n1; app A",
        "run k app=A node=n1",
        "APP ADD APP_ALLOC",
        "APP A ADD APP_ALLOC ref=k {vcore=1000}",
    ),
    Row(
        "E5 withdrawn",
        "app A; ask k app=A",
        "release k app=A",
        "APP REMOVE REQUEST_CANCEL, APP REMOVE REQUEST_TIMEOUT",
        "APP A REMOVE REQUEST_CANCEL ref=k {vcore=1000}",
    ),
    Row(
        "E5 with its application",
        "app A; ask k app=A",
        "remove-app A",
        "APP REMOVE REQUEST_CANCEL",
        "APP A REMOVE REQUEST_CANCEL ref=k {vcore=1000}",
    ),
    Row(
        "E5 with its allocation",
        RUNNING,
        "release k app=A",
        "APP REMOVE REQUEST_CANCEL",
        "APP A REMOVE REQUEST_CANCEL ref=k {vcore=1000}",
    ),
    Row("E5 not with a timeout", RUNNING, "release k app=A type=TIMEOUT", "APP REMOVE REQUEST_CANCEL", ""),
    Row("E5 not with its node", RUNNING, "decommission n1", "APP REMOVE REQUEST_CANCEL", ""),
    Row(
        "E5 placeholder timeout",
        "node n1 vcore=1000; app A gang={vcore=2000} timeout=10s; ask p1 app=A group=g placeholder;"
        " ask p2 app=A group=g placeholder; cycle",
        "at=11s cycle",
        "APP REMOVE REQUEST_TIMEOUT",
        "APP A REMOVE REQUEST_TIMEOUT ref=p2 {vcore=1000}",
    ),
    Row(
        "E6 stopped",
        RUNNING,
        "release k app=A",
        "APP REMOVE ALLOC_CANCEL",
        "APP A REMOVE ALLOC_CANCEL ref=k {vcore=1000}",
    ),
    Row(
        "E6 with its application",
        RUNNING,
        "remove-app A",
        "APP REMOVE ALLOC_CANCEL",
        "APP A REMOVE ALLOC_CANCEL ref=k {vcore=1000}",
    ),
    Row(
        "E6 preempted",
        RUNNING,
        "release k app=A type=PREEMPTED_BY_SCHEDULER",
        "APP REMOVE ALLOC_PREEMPT",
        "APP A REMOVE ALLOC_PREEMPT ref=k {vcore=1000}",
    ),
    Row(
        "E6 timed out",
        RUNNING,
        "release k app=A type=TIMEOUT",
        "APP REMOVE ALLOC_TIMEOUT",
        "APP A REMOVE ALLOC_TIMEOUT ref=k {vcore=1000}",
    ),
    Row(
        "E6 placeholder replaced",
        f"{GANG}; ask k app=A group=g; cycle",
        "release p app=A type=PLACEHOLDER_REPLACED",
        "APP REMOVE ALLOC_REPLACED",
        "APP A REMOVE ALLOC_REPLACED ref=p {vcore=1000}",
    ),
    Row(
        "E6 node removed",
        RUNNING,
        "decommission n1",
        "APP REMOVE ALLOC_NODEREMOVED",
        "APP A REMOVE ALLOC_NODEREMOVED ref=k {vcore=1000}",
    ),
    Row("E7", "app A", "remove-app A", "APP REMOVE NONE", "APP A REMOVE NONE"),
    Row(
        "E8 blocked, once",
        "queue root.a maxapplications=1; node n1; app A; app B; run k app=A node=n1; ask q app=B",
        "cycle; cycle",
        "APP NONE APP_CANNOTRUN_QUEUE, APP NONE APP_RUNNABLE_QUEUE",
        "APP B NONE APP_CANNOTRUN_QUEUE",
    ),
    Row(
        "E8 no longer",
        "queue root.a maxapplications=1; node n1; app A; app B; run k app=A node=n1; ask q app=B",
        "cycle; release k app=A; cycle; cycle",
        "APP NONE APP_CANNOTRUN_QUEUE, APP NONE APP_RUNNABLE_QUEUE",
        "APP B NONE APP_CANNOTRUN_QUEUE\nAPP B NONE APP_RUNNABLE_QUEUE",
    ),
    Row("E8 not without a block before", PLACED, "cycle", "APP NONE APP_RUNNABLE_QUEUE", ""),
    Row(
        "E9 blocked and no longer",
        "queue root.a; limit root.a users=ann apps=1; node n1; app A user=ann; app B user=ann; run k app=A node=n1;"
        " ask q app=B",
        "cycle; cycle; release k app=A; cycle",
        "APP NONE APP_CANNOTRUN_QUOTA, APP NONE APP_RUNNABLE_QUOTA",
        "APP B NONE APP_CANNOTRUN_QUOTA\nAPP B NONE APP_RUNNABLE_QUOTA",
    ),
    Row(
        "E10 over the quota and in it again, once each",
        "queue root.a max={vcore=1000}; node n1; app A; run k app=A node=n1; ask q app=A",
        "cycle; cycle; queue root.a max={vcore=3000}; update-config; cycle; cycle",
        "REQUEST NONE NONE",
        'REQUEST q NONE NONE ref=A {vcore=1000} "Request for vcore=1 does not fit in queue root.a: of max'
        ' vcore=1, vcore=0 is free"\n'
        'REQUEST q NONE NONE ref=A {vcore=1000} "Request for vcore=1 fits in queue root.a again"',
    ),
    Row(
        "E11 over the quota and in it again, once each",
        "queue root.a; limit root.a users=ann max={vcore=1000}; node n1; app A user=ann; run k app=A node=n1;"
        " ask q app=A",
        "cycle; cycle; release k app=A; cycle",
        "REQUEST NONE NONE",
        'REQUEST q NONE NONE ref=A {vcore=1000} "Request for vcore=1 does not fit in the limit of user ann'
        ' in root.a: of max vcore=1, vcore=0 is free"\n'
        'REQUEST q NONE NONE ref=A {vcore=1000} "Request for vcore=1 fits in the limits of user ann again"',
    ),
    Row(
        "E12 reasons with counts, sorted",
        "node n1; node n2; app A; ask k app=A; attach predicates events; cycle",
        "answer k refuse=n1,n2 reason=zoo; cycle; at=10s cycle; at=600s cycle; answer k refuse=n1,n2 reason=art; cycle",
        "REQUEST NONE NONE",
        'REQUEST k NONE NONE ref=A {vcore=1000} "The resource manager refused 2 nodes: zoo (2x)"\n'
        'REQUEST k NONE NONE ref=A {vcore=1000} "The resource manager refused 2 nodes: art (2x)"',
    ),
    Row(
        "E13",
        BOUND,
        "cycle",
        "REQUEST NONE NONE",
        'REQUEST d NONE NONE ref=d {f=15} "No victim makes room for f=15 on required node n1"',
    ),
    Row(
        "E14 for an ask",
        PREEMPTION,
        "at=31s cycle",
        "REQUEST NONE NONE",
        'REQUEST v1 NONE NONE ref=b {vcore=2000} "Preempted for request k of application a in queue root.a"',
    ),
    Row(
        "E14 for a required node",
        "node n1 f=20; node n2 f=20; app A; run v1 app=A node=n1 f=15; ask d app=A f=15 required=n1",
        "cycle",
        "REQUEST NONE NONE",
        'REQUEST v1 NONE NONE ref=A {f=15} "Preempted for request d of application A in queue root.a"',
    ),
    Row(
        "E15",
        f"{QUOTA}; at=1s {LOWERED}",
        "at=3s cycle",
        "REQUEST NONE NONE",
        'REQUEST k1 NONE NONE ref=A {f=4} "Preempted because queue root.a holds f=8, more than its max of f=5"',
    ),
    Row(
        "E15 for a gang that leaves as a whole",
        f"{QUOTA.replace('app A;', 'app A gang={f=8} style=Hard;').replace('f=4', 'f=4 group=g placeholder')};"
        f" at=1s {LOWERED}",
        "at=3s cycle",
        "REQUEST NONE NONE",
        'REQUEST k1 NONE NONE ref=A {f=4} "Preempted because queue root.a holds f=8, more than its max of f=5;'
        ' gang A leaves as a whole: 2 members"\n'
        'REQUEST k2 NONE NONE ref=A {f=4} "Preempted because queue root.a holds f=8, more than its max of f=5;'
        ' gang A leaves as a whole: 2 members"',
    ),
    Row(
        "E16",
        GANG,
        "ask k app=A group=g vcore=2000; cycle",
        "REQUEST NONE NONE",
        'REQUEST p NONE NONE ref=A {vcore=2000} "Placeholder with vcore=1 is smaller than the real request k'
        ' for vcore=2"',
    ),
    Row(
        "E16a lost",
        SHORT,
        "decommission n1",
        "REQUEST NONE NONE",
        'REQUEST v1 NONE NONE ref=A {vcore=1000} "Gang A runs 1 of 2 members of g"',
    ),
    Row(
        "E16a whole again",
        f"{SHORT}; decommission n1; ask r app=A group=g vcore=1000",
        "cycle",
        "REQUEST NONE NONE",
        'REQUEST r NONE NONE ref=A {vcore=1000} "Gang A runs all members that g needs again"',
    ),
    Row(
        "E16a given up",
        f"{SHORT}; decommission n1",
        "at=30s cycle",
        "REQUEST NONE NONE",
        'REQUEST v2 NONE NONE ref=A {vcore=1000} "Ended because gang A ran 1 of 2 members of g for 30 s (gang.grace)"',
    ),
    Row(
        "E17 and E18, the flag first",
        "",
        "node n1 vcore=4000; node n2 vcore=4000 draining",
        "NODE SET NODE_SCHEDULABLE, NODE ADD NONE",
        'NODE n1 SET NODE_SCHEDULABLE "schedulable: true"\nNODE n1 ADD NONE {vcore=4000} "Node n1 was registered"\n'
        'NODE n2 SET NODE_SCHEDULABLE "schedulable: false"\nNODE n2 ADD NONE {vcore=4000} "Node n2 was registered"',
    ),
    Row(
        "E17 set, unchanged too",
        "node n1",
        "drain n1; drain n1; undrain n1",
        "NODE SET NODE_SCHEDULABLE",
        'NODE n1 SET NODE_SCHEDULABLE "schedulable: false"\nNODE n1 SET NODE_SCHEDULABLE "schedulable: false"\n'
        'NODE n1 SET NODE_SCHEDULABLE "schedulable: true"',
    ),
    Row("E18 not if refused", "node n1", "node n1", "NODE SET NODE_SCHEDULABLE, NODE ADD NONE", ""),
    Row(
        "E19",
        "node n1",
        "decommission n1",
        "NODE REMOVE NODE_DECOMISSION",
        'NODE n1 REMOVE NODE_DECOMISSION "Node n1 was removed"',
    ),
    Row(
        "E20 only if changed",
        "node n1 vcore=4000",
        "resize n1 vcore=4000; resize n1 vcore=5000",
        "NODE SET NODE_CAPACITY",
        "NODE n1 SET NODE_CAPACITY {vcore=5000}",
    ),
    Row(
        "E21 own",
        PLACED,
        "cycle; release k app=A",
        "NODE ADD NODE_ALLOC, NODE REMOVE NODE_ALLOC",
        "NODE n1 ADD NODE_ALLOC ref=k {vcore=2000}\nNODE n1 REMOVE NODE_ALLOC ref=k {vcore=2000}",
    ),
    Row(
        "E21 foreign",
        "node n1",
        "foreign f node=n1 vcore=100; release-foreign f",
        "NODE ADD NODE_ALLOC, NODE REMOVE NODE_ALLOC",
        "NODE n1 ADD NODE_ALLOC ref=f {vcore=100}\nNODE n1 REMOVE NODE_ALLOC ref=f {vcore=100}",
    ),
    Row(
        "E21 not for a swap in place",
        f"{GANG}; ask k app=A group=g; cycle",
        "release p app=A type=PLACEHOLDER_REPLACED",
        "NODE ADD NODE_ALLOC, NODE REMOVE NODE_ALLOC",
        "",
    ),
    Row(
        "E22",
        PREEMPTION,
        "at=31s cycle; release v1 app=b type=PREEMPTED_BY_SCHEDULER; cycle",
        "NODE ADD NODE_RESERVATION, NODE REMOVE NODE_RESERVATION",
        "NODE n1 ADD NODE_RESERVATION ref=k {vcore=2000}\nNODE n1 REMOVE NODE_RESERVATION ref=k {vcore=2000}",
    ),
    Row(
        "E23 dynamic",
        DYNAMIC,
        "app A user=ann; remove-app A; at=10s cycle",
        "QUEUE ADD QUEUE_DYNAMIC, QUEUE REMOVE QUEUE_DYNAMIC",
        "QUEUE root.ann ADD QUEUE_DYNAMIC\nQUEUE root.ann REMOVE QUEUE_DYNAMIC",
    ),
    Row(
        "E23 managed",
        "queue root.a; register",
        "queue root.b; update-config; at=10s cycle",
        "QUEUE ADD NONE, QUEUE REMOVE NONE",
        "QUEUE root.b ADD NONE\nQUEUE root.a REMOVE NONE",
    ),
    Row(
        "E24",
        "node n1",
        "app A; remove-app A",
        "QUEUE ADD QUEUE_APP, QUEUE REMOVE QUEUE_APP",
        "QUEUE root.a ADD QUEUE_APP ref=A\nQUEUE root.a REMOVE QUEUE_APP ref=A",
    ),
    Row(
        "E25 changed, then cleared",
        "queue root.a max={vcore=1000}; register",
        "queue root.a max={vcore=2000}; update-config; queue root.a; update-config",
        "QUEUE SET QUEUE_MAX",
        "QUEUE root.a SET QUEUE_MAX {vcore=2000}\nQUEUE root.a SET QUEUE_MAX {}",
    ),
    Row(
        "E25 root, the new max",
        "node n1 vcore=1000",
        "node n2 vcore=2000; decommission n2",
        "QUEUE SET QUEUE_MAX",
        "QUEUE root SET QUEUE_MAX {vcore=3000}\nQUEUE root SET QUEUE_MAX {vcore=1000}",
    ),
    Row(
        "E26 changed, then cleared",
        "queue root.a guaranteed={vcore=1000}; register",
        "queue root.a guaranteed={vcore=2000}; update-config; queue root.a; update-config",
        "QUEUE SET QUEUE_GUARANTEED",
        "QUEUE root.a SET QUEUE_GUARANTEED {vcore=2000}\nQUEUE root.a SET QUEUE_GUARANTEED {}",
    ),
    Row(
        "E27 both ways",
        "queue root.a; queue root.b; register",
        "queue root.a parent; queue root.b; update-config; queue root.a; queue root.b; update-config",
        "QUEUE SET QUEUE_TYPE",
        'QUEUE root.a SET QUEUE_TYPE "leaf queue: false"\nQUEUE root.a SET QUEUE_TYPE "leaf queue: true"',
    ),
    Row(
        "E28 armed, moved, run, cleared",
        QUOTA,
        f"at=1s {LOWERED}; partition default quota=on; queue root.a max={{f=5}} quota.preemption.delay=1;"
        " update-config; at=3s cycle",
        "QUEUE SET QUEUE_PREEMPTION",
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Queue root.a is f=3 above its max"\n'
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Preemption for the max of queue root.a starts in 2 s"\n'
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Preemption for the max of queue root.a now starts in 1 s"\n'
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Preemption for the max of queue root.a ended FULL: target'
        " f=3, freed f=4, unmet -, chosen 1,"
        ' asked to leave 1"\n'
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Preemption for the max of queue root.a is called off"',
    ),
    Row(
        "E28 without candidates",
        "partition default quota=on; queue root.a max={f=10} quota.preemption.delay=1; register; node n1 f=100; app A;"
        " run k1 app=A node=n1 f=8 required=n1",
        f"at=1s {LOWERED}; at=3s cycle",
        "QUEUE SET QUEUE_PREEMPTION",
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Queue root.a is f=3 above its max"\n'
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Preemption for the max of queue root.a starts in 2 s"\n'
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Preemption for the max of queue root.a ended NONE: target'
        " f=3, freed f=0, unmet f=3, chosen 0,"
        ' asked to leave 0; f=8 is bound to its node"\n'
        'QUEUE root.a SET QUEUE_PREEMPTION {f=5} "Preemption for the max of queue root.a is called off"',
    ),
    Row(
        "E29 up and down",
        PLACED,
        "cycle; release k app=A",
        "USERGROUP ADD UG_USER_RESOURCE, USERGROUP REMOVE UG_USER_RESOURCE",
        "USERGROUP user ADD UG_USER_RESOURCE ref=root.a {vcore=2000}\n"
        "USERGROUP user REMOVE UG_USER_RESOURCE ref=root.a {vcore=2000}",
    ),
    Row(
        "E29 resized, by the difference",
        "node n1; app A user=ann; run k app=A node=n1 vcore=1000 memory=2",
        "resize-ask k app=A vcore=1500 memory=1",
        "USERGROUP ADD UG_USER_RESOURCE, USERGROUP REMOVE UG_USER_RESOURCE",
        "USERGROUP ann ADD UG_USER_RESOURCE ref=root.a {vcore=500}\n"
        "USERGROUP ann REMOVE UG_USER_RESOURCE ref=root.a {memory=1}",
    ),
    Row(
        "E30 up and down",
        f"{GROUP}; ask k app=A",
        "cycle; release k app=A",
        "USERGROUP ADD UG_GROUP_RESOURCE, USERGROUP REMOVE UG_GROUP_RESOURCE",
        "USERGROUP dev ADD UG_GROUP_RESOURCE ref=root.a {vcore=1000}\n"
        "USERGROUP dev REMOVE UG_GROUP_RESOURCE ref=root.a {vcore=1000}",
    ),
    Row(
        "E30 not without a group",
        f"{RUNNING}; ask q app=A",
        "cycle",
        "USERGROUP ADD UG_GROUP_RESOURCE",
        "",
    ),
    Row(
        "E31 tied and untied",
        "queue root.a; limit root.a groups=dev max={vcore=9000}; register",
        "app A user=ann groups=dev; remove-app A",
        "USERGROUP SET UG_APP_LINK, USERGROUP REMOVE UG_APP_LINK",
        "USERGROUP dev SET UG_APP_LINK ref=A\nUSERGROUP dev REMOVE UG_APP_LINK ref=A",
    ),
    Row(
        "E32 applied with each configuration, cleared",
        "queue root.a; limit root.a users=ann,* max={vcore=1000}; register",
        "queue root.a; limit root.a users=ann max={vcore=1000}; queue root.b; update-config;"
        " queue root.a; update-config",
        "USERGROUP SET UG_USER_LIMIT, USERGROUP REMOVE UG_USER_LIMIT",
        "USERGROUP * REMOVE UG_USER_LIMIT ref=root.a\nUSERGROUP ann SET UG_USER_LIMIT ref=root.a\n"
        "USERGROUP ann REMOVE UG_USER_LIMIT ref=root.a",
    ),
    Row(
        "E33 applied with each configuration, cleared",
        "queue root.a; limit root.a groups=dev,* max={vcore=1000}; register",
        "queue root.a; limit root.a groups=dev max={vcore=1000}; queue root.b; update-config;"
        " queue root.a; update-config",
        "USERGROUP SET UG_GROUP_LIMIT, USERGROUP REMOVE UG_GROUP_LIMIT",
        "USERGROUP * REMOVE UG_GROUP_LIMIT ref=root.a\nUSERGROUP dev SET UG_GROUP_LIMIT ref=root.a\n"
        "USERGROUP dev REMOVE UG_GROUP_LIMIT ref=root.a",
    ),
]


def steps(text: str) -> list[str]:
    return [step.strip() for step in text.split(";") if step.strip()]


def is_about(line: str, kinds: list[list[str]]) -> bool:
    """Whether *line*, ``TYPE OBJECT CHANGE DETAIL ...``, is of one of *kinds*."""
    kind, _, change, detail = line.split()[:4]
    return [kind, change, detail] in kinds


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_row(row: Row) -> None:
    """Exactly what the table says, field by field."""
    stage = Stage()
    stage.play(steps(row.given) or ["register"])
    if "attach" not in row.given:
        stage.play(["attach events"])
    kinds = [kind.split() for kind in row.about.split(",")]
    answers = stage.play(steps(row.when))
    events = [answer.removeprefix("event ") for answer in answers if answer.startswith("event ")]
    assert [event for event in events if is_about(event, kinds)] == row.told.splitlines()


def test_every_row_of_the_table_is_provoked() -> None:
    """E1 to E33, and every detail that is ever emitted."""
    named = {word.rstrip(",") for row in ROWS for word in row.rule.split() if word.startswith("E")}
    assert named >= {f"E{number}" for number in range(1, 34)}
    told = {EventDetail[line.split()[3]] for row in ROWS for line in row.told.splitlines()}
    assert set(EventDetail) - told == NEVER_TOLD


def test_victims_of_the_periodic_policy_are_told_like_others() -> None:
    """As E15: the victim, its application and size, and the queue that holds more than its share."""
    queues = {name: {"resources": {"guaranteed": {"f": 2}}} for name in ("a", "b")}
    stage = monitor_stage.Stage(queues, per_round=1, natural_factor=1, dead_zone=0)
    stage.node("n", {"f": 4})
    stage.application("app-a", "a")
    stage.application("app-b", "b")
    stage.submit("app-a", ["a1", "a2", "a3", "a4"], {"f": 1}, node_id="n")
    stage.submit("app-b", ["b1", "b2"], {"f": 1})
    stage.apply(AttachCallbacks("rm", events=True))
    effects = stage.run_to(30)
    told = [effect for effect in effects if isinstance(effect, EventRecorded) and effect.type == EventType.REQUEST]
    victims = [event for event in told if event.message.startswith("Preempted")]
    assert [event.object_id for event in victims] == monitor_stage.killed(effects)
    assert len(victims) == 2
    for event in victims:
        assert (event.reference_id, event.change, event.detail) == ("app-a", EventChange.NONE, EventDetail.NONE)
        assert event.resources == Resources({"f": 1})
        assert event.message == "Preempted because queue root.a holds more than its share"
