"""Answers about one busy partition are, field by field and in order, those that were recorded.

``answers.json`` holds the lines that are played, and what was answered before messages and documents came from tables.
Clients know these names: a change here is a change of the interface.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from kornel.core.rest.documents.message_documents import message_document
from kornel.core.telling.encoding import kornel_v1
from kornel.core.telling.encoding.yunikorn import applications, cluster, nodes, queues, usage
from kornel.core.telling.explain import Named, QueueAt, UserNamed
from kornel.core.telling.reader import Reader
from tests.scenarios.stage import Stage

RECORDED: Final = json.loads((Path(__file__).parent / "answers.json").read_text())
PARTITION: Final = "[rm-1]default"


def as_text(answer: Any) -> str:
    """Returns *answer* as JSON with its fields in order; a message with all of its fields, which have none."""
    if isinstance(answer, Message):
        fields = MessageToDict(answer, always_print_fields_with_no_presence=True, preserving_proto_field_name=True)
        return json.dumps(fields, sort_keys=True)
    return json.dumps(orjson.loads(orjson.dumps(answer)))


def answers() -> dict[str, Any]:
    """Returns what is answered about everything that there is after the recorded lines."""
    stage = Stage()
    stage.play(RECORDED["played"])
    reader = Reader(stage.engine, lambda: stage.now_ns)
    views, manager = reader[PARTITION], reader.manager
    assert manager is not None
    found: dict[str, Any] = {
        "cluster": cluster.CLUSTER.write(cluster.ClusterEntry(views.partition(), manager, 17)),
        "partition": cluster.PARTITION.write(views.partition()),
        "status message": kornel_v1.encode_partition(views.status()),
    }
    for number, rule in enumerate(views.rules()):
        found[f"rule {number}"] = cluster.RULE.write(rule)
    for queue in views.queues():
        found[f"queue {queue.path}"] = queues.write_queue(queue)
        found[f"queue {queue.path} message"] = kornel_v1.encode_queue(queue)
        explained = views.explain(QueueAt(queue.path))
        assert explained is not None
        found[f"queue {queue.path} explained message"] = kornel_v1.encode_queue_explanation(explained)
    for node in views.nodes():
        found[f"node {node.node_id}"] = nodes.write_node(node)
        found[f"node {node.node_id} message"] = kornel_v1.encode_node(node)
    for summary in views.node_summaries():
        found[f"node {summary.node_id} in short message"] = kornel_v1.encode_node_summary(summary)
    for application in (*views.applications(), *views.finished_applications(), *views.rejected_applications()):
        found[f"application {application.application_id}"] = applications.write_application(application)
        found[f"application {application.application_id} message"] = kornel_v1.encode_application(application)
    for user in views.users():
        if user is not None:
            found[f"user {user.user}"] = usage.USER.write(user)
            bounds = views.explain(UserNamed(user.user))
            assert bounds is not None
            found[f"user {user.user} explained message"] = kornel_v1.encode_user_explanation(bounds)
    for group in views.groups():
        if group is not None:
            found[f"group {group.group}"] = usage.GROUP.write(group)
    for name in RECORDED["explained"]:
        report = views.explain(Named(name))
        assert report is not None
        found[f"report {name}"] = message_document(kornel_v1.encode_report(report))
        found[f"report {name} message"] = kornel_v1.encode_report(report)
    return found


ANSWERS: Final = answers()


def test_everything_recorded_is_answered() -> None:
    assert list(ANSWERS) == list(RECORDED["answers"])


@pytest.mark.parametrize("name", RECORDED["answers"])
def test_the_answer_is_the_recorded_one(name: str) -> None:
    assert as_text(ANSWERS[name]) == json.dumps(RECORDED["answers"][name])
