"""Partitions, the root queue and names: T1 to T14, V1 to V6, B5, B12."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kornel.core.config.loader import checksum_of, load
from kornel.core.domain.settings import NodeSortPolicy
from kornel.shared.default_configuration import DEFAULT_CONFIGURATION
from tests.unit.config.reading import errors, find, load_root, only, partition_text, queue, root


def test_t1_empty_text_is_the_built_in_default() -> None:
    """Empty text gives one partition that places by namespace below a root open to everybody."""
    partition = only(load(""))
    assert partition == only(load(DEFAULT_CONFIGURATION))
    assert (partition.name, partition.root.name, partition.root.children) == ("default", "root", ())
    assert partition.root.submit_acl.everybody
    (rule,) = partition.placement_rules
    assert (rule.name, rule.value, rule.create) == ("tag", "namespace", True)


@pytest.mark.parametrize("text", ["# nothing\n", "\n", "partitions:\n", "partitions: []\n", "---\n", "{}"])
def test_t2_no_partition_is_refused(text: str) -> None:
    """A text without a partition would remove everything and is refused (B5)."""
    (problem,) = errors(text)
    assert "no partition" in problem.message


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("partitions:\n  - queues:\n      - name: root\n        submitACL: '*'\n", "submitACL"),
        ("partitions:\n  - queues:\n      - name: root\n        maxApplications: 1\n", "maxApplications"),
        ("partitions:\n  - queues: []\n    statedumpfilepath: x\n", "statedumpfilepath"),
        ("foo: 1\npartitions:\n  - queues: []\n", "foo"),
        ("partitions:\n  - queues: []\n    preemption: {speed: 1}\n", "speed"),
        ("partitions:\n  - queues: [{name: a, resources: {min: {}}}]\n", "min"),
        ("partitions:\n  - queues: [{name: a, childtemplate: {submitacl: x}}]\n", "submitacl"),
        ("partitions:\n  - queues: []\n    limits: [{users: [a], maxapplications: 1, x: 1}]\n", "x"),
        ("partitions:\n  - queues: []\n    placementrules: [{name: user, filter: {x: 1}}]\n", "x"),
        ("partitions:\n  - queues: []\n    usergroupresolver: {kind: os}\n", "kind"),
    ],
)
def test_t3_unknown_keys_are_refused(text: str, key: str) -> None:
    """A key that the schema does not have is named with its line, at every level."""
    (problem,) = errors(text)
    assert f"'{key}'" in problem.message
    assert problem.line == next(n for n, line in enumerate(text.splitlines(), 1) if key in line)


@pytest.mark.parametrize("rest", ["", "    queues:\n"])
def test_t5_queues_are_required(rest: str) -> None:
    """A partition says which queues it has (V2)."""
    (problem,) = errors("partitions:\n  - name: default\n" + rest)
    assert "has no queues" in problem.message


def test_t5_empty_list_of_queues_is_a_bare_root() -> None:
    """An empty list gives a root without children."""
    assert load_root().children == ()
    assert load_root().parent


@pytest.mark.parametrize("names", [["prod"], ["prod", "dev"]])
def test_t6_root_is_inserted(names: list[str]) -> None:
    """Without a queue called root, one is put above all top queues (V3)."""
    top = load_root(*[{"name": name} for name in names])
    assert (top.name, top.parent, [child.name for child in top.children]) == ("root", True, names)


def test_t7_root_beside_others_is_an_ordinary_queue() -> None:
    """A root among several top queues goes below the inserted one."""
    top = load_root({"name": "root"}, {"name": "other"})
    assert [child.name for child in top.children] == ["root", "other"]


def test_root_in_capitals_is_the_root() -> None:
    """Names are compared in lower case, that of the root too (B12)."""
    top = load_root({"name": "ROOT", "queues": [{"name": "A"}]})
    assert (top.name, [child.name for child in top.children]) == ("root", ["a"])


def test_t8_root_takes_no_resources() -> None:
    """Any guaranteed or max on the root is refused, even an empty one; a null is as good as none (V4)."""
    cases: list[dict[str, dict[str, str]]] = [{"max": {}}, {"guaranteed": {"vcore": "1"}}]
    for resources in cases:
        (problem,) = errors(partition_text(root(resources=resources)))
        assert "cluster" in problem.message
    assert load_root(root(resources={"max": None})).max is None
    assert find(load_root(root(queue("root", m={"vcore": "1"}))), "root").max == {"vcore": 1000}


def test_t9_partition_names_are_unique() -> None:
    """Without a name, or in any case, a partition is called default; names differ by more than case (V1)."""
    for first, second in (("Default", None), ("a", "A")):
        partitions = [{"name": first, "queues": []}, {"name": second, "queues": []}]
        (problem,) = errors(json.dumps({"partitions": partitions}))
        assert "exists already" in problem.message
    assert only(load("partitions: [{name: DEFAULT, queues: []}]")).name == "default"
    assert only(load("partitions: [{name: GPU, queues: []}]")).name == "GPU"


@pytest.mark.parametrize("name", ["no.dot", "a$b", "a" * 65, "", "a b", "ä", "a\n", "@recovery@", "@RECOVERY@"])
def test_t10_bad_queue_names(name: str) -> None:
    """A queue name has 1 to 64 legal characters and is not the reserved one (V5, B12)."""
    (problem,) = errors(partition_text(root(queue(name))))
    assert problem.path == "partitions[0].queues[0].queues[0].name"


@pytest.mark.parametrize("name", ["x_#/@:-9", "a" * 64, "1", "root"])
def test_t10_good_queue_names(name: str) -> None:
    """Digits may lead, and a child may be called root."""
    assert load_root(root(queue(name))).children[0].name == name


def test_t10_siblings_differ_by_more_than_case() -> None:
    """Two children of one parent have different names; cousins need not (V6)."""
    (problem,) = errors(partition_text(root(queue("a"), queue("A"))))
    assert "has a queue 'a' already" in problem.message
    assert len(load_root(root(queue("a", queue("x")), queue("b", queue("X")))).children) == 2


def test_parents_are_flagged_or_have_children() -> None:
    """Children make a parent whatever the flag says."""
    top = load_root(root(queue("a", queue("x"), parent=False), queue("b", parent=True), queue("c")))
    assert [child.parent for child in top.children] == [True, True, False]


def test_t13_node_sort_policy() -> None:
    """The policy is one of two exact words; without weights vcore and memory count alike (V50)."""
    assert only(load(partition_text(root()))).node_sort.weights == {"vcore": 1.0, "memory": 1.0}
    text = (
        "partitions: [{queues: [], nodesortpolicy: {type: binpacking, resourceweights: {gpu: 2, memory: 0.5, x: 0}}}]"
    )
    node_sort = only(load(text)).node_sort
    assert node_sort.policy is NodeSortPolicy.BINPACKING
    assert node_sort.weights == {"gpu": 2.0, "memory": 0.5, "x": 0.0}
    assert only(load(partition_text(root(), nodesortpolicy={"type": ""}))).node_sort.policy is NodeSortPolicy.FAIR


@pytest.mark.parametrize("policy", ["fair", "{type: Fair}", "{type: random}"])
def test_t13_bad_node_sort_policy(policy: str) -> None:
    """A scalar, another case and other words are refused."""
    assert len(errors(f"partitions: [{{queues: [], nodesortpolicy: {policy}}}]")) == 1


@pytest.mark.parametrize("weight", ["-1", ".nan", ".inf", "'1'", "x", "[]", "1e999"])
def test_t13_bad_weight(weight: str) -> None:
    """A weight is a finite number of 0 or more (B4)."""
    (problem,) = errors(f"partitions: [{{queues: [], nodesortpolicy: {{resourceweights: {{vcore: {weight}}}}}}}]")
    assert problem.path == "partitions[0].nodesortpolicy.resourceweights.vcore"


def test_t14_checksum_leaves_out_the_checksum() -> None:
    """Texts that differ only in the checksum they carry have the same checksum."""
    text = "partitions: []\n{}rest: x\n"
    assert checksum_of(text.format("checksum: " + "0" * 64)) == checksum_of(text.format("checksum: " + "A" * 64))
    assert checksum_of("a: b\nchecksum: 12\n") == checksum_of("a: b\nchecksum: 34\n") == checksum_of("a: b\n\n")
    assert checksum_of("a") != checksum_of("b")


def test_checksum_of_the_contract_case() -> None:
    """The sum is that of the validation call's example (rest.md 4.10)."""
    text = "partitions:\n  - name: default\n    queues:\n      - name: root\n        queues:\n          - name: test\n"
    assert checksum_of(text) == "64682562A0D2DC0CE38A81F78107DADA677AFCE769A7DF633E4D3B28964B94DE"
    assert load(text).checksum == checksum_of(text)
    assert load("").checksum == checksum_of(DEFAULT_CONFIGURATION)


def test_a_checksum_in_the_text_is_accepted() -> None:
    """The key is allowed and not compared."""
    assert len(load("checksum: ABC\npartitions: [{queues: []}]").checksum) == 64


def test_unknown_resolver_is_refused() -> None:
    """The resolver is one of those there are (B3)."""
    assert only(load(partition_text(root(), usergroupresolver={"type": "os"}))).resolver == "os"
    assert len(errors(partition_text(root(), usergroupresolver={"type": "kerberos"}))) == 1


def test_configuration_is_immutable() -> None:
    """Neither fields nor mappings can be changed."""
    configuration = load(partition_text(root(queue("a", m={"vcore": "1"}, properties={"k": "v"}))))
    leaf = only(configuration).root.children[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        leaf.name = "b"  # type: ignore[misc]
    for mapping in (leaf.max, leaf.properties, leaf.effective_raw, only(configuration).node_sort.weights):
        with pytest.raises(TypeError):
            mapping["x"] = 1  # type: ignore[index]
