"""The API of Kubernetes, as tests call it, and the objects that they make."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import httpx

Object = dict[str, Any]

HOSTNAME: Final = "kubernetes.io/hostname"
NAMESPACE: Final = "team"
SYSTEM: Final = "yunikorn"
"""The namespace that has the ConfigMaps and the Lease of the shim."""

PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
    "ConfigMap": f"/api/v1/namespaces/{SYSTEM}/configmaps",
    "Event": f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events",
    "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SYSTEM}/rolebindings",
}
VERSIONS: Final = {"Lease": "coordination.k8s.io/v1", "PriorityClass": "scheduling.k8s.io/v1"}


class Api:
    """A client of the API server. It may be called from several threads."""

    def __init__(self, address: str, token: str) -> None:
        limits = httpx.Limits(max_connections=16, max_keepalive_connections=16)
        # Its certificate is its own, made when it starts.
        self._client = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {token}"},
            verify=False,  # noqa: S501
            timeout=30,
            limits=limits,
        )

    def close(self) -> None:
        self._client.close()

    def is_ready(self) -> bool:
        try:
            return self._client.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def create(self, *objects: Object) -> None:
        """Makes *objects*, all at once where there are many."""
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(self._create, objects))

    def _create(self, each: Object) -> None:
        kind = each["kind"]
        body = {"apiVersion": VERSIONS.get(kind, "v1"), **each}
        self._client.post(PATHS[kind], json=body).raise_for_status()

    def read_all(self, kind: str, **parameters: str) -> list[Object]:
        answer = self._client.get(PATHS[kind], params=parameters).raise_for_status()
        items: list[Object] = answer.json()["items"]
        return items

    def find(self, kind: str, name: str) -> Object | None:
        answer = self._client.get(f"{PATHS[kind]}/{name}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: Object = answer.raise_for_status().json()
        return found

    def patch(self, kind: str, name: str, body: Object) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        self._client.patch(f"{PATHS[kind]}/{name}", json=body, headers=headers).raise_for_status()

    def delete(self, kind: str, *names: str, **parameters: str) -> None:
        """Deletes objects; one that has gone already is deleted."""

        def delete(name: str) -> None:
            answer = self._client.delete(f"{PATHS[kind]}/{name}", params=parameters)
            if answer.status_code != httpx.codes.NOT_FOUND:
                answer.raise_for_status()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(delete, names))

    def list_pods(self) -> tuple[list[Object], str]:
        """Returns all pods, and the version from which a watch goes on."""
        answer = self._client.get(PATHS["Pod"]).raise_for_status().json()
        return answer["items"], answer["metadata"]["resourceVersion"]

    @contextmanager
    def watch_pods(self, version: str, silence_s: float = 30) -> Iterator[Iterator[tuple[str, Object]]]:
        """Yields what happens to pods after *version*, each with ``ADDED``, ``MODIFIED``, ``DELETED`` or ``ERROR``.

        Raises httpx.ReadTimeout if nothing happens for so long.
        """
        parameters = {"watch": "1", "resourceVersion": version}
        timeout = httpx.Timeout(30, read=silence_s)
        with self._client.stream("GET", PATHS["Pod"], params=parameters, timeout=timeout) as answer:
            answer.raise_for_status()
            yield ((event["type"], event["object"]) for event in map(json.loads, answer.iter_lines()))

    def pods(self, application: str | None = None) -> list[Object]:
        """Returns the pods of an application, its placeholders included, or all."""
        return [pod for pod in self.read_all("Pod") if application is None or application_of(pod) == application]


def name_of(each: Object) -> str:
    name: str = each["metadata"]["name"]
    return name


def uid_of(each: Object) -> str:
    uid: str = each["metadata"]["uid"]
    return uid


def node_of(pod: Object) -> str | None:
    """Returns the node that a pod is bound to, or ``None``."""
    return pod["spec"].get("nodeName") or None


def phase_of(pod: Object) -> str:
    phase: str = pod["status"].get("phase", "")
    return phase


def is_live(pod: Object) -> bool:
    """Tells whether the containers of a pod run or will run."""
    return phase_of(pod) not in {"Succeeded", "Failed"}


def application_of(pod: Object) -> str | None:
    """Returns the ID of a pod's application, which has another label in placeholders that the shim made."""
    labels = pod["metadata"].get("labels", {})
    found: str | None = labels.get("applicationId", labels.get("yunikorn.apache.org/app-id"))
    return found


def is_placeholder(pod: Object) -> bool:
    """Tells whether a pod only keeps room for a member of a gang."""
    return "internal.yunikorn.apache.org/placeholder" in pod["metadata"].get("annotations", {})


def make_node(
    name: str, cpu: str = "4", memory: str = "16Gi", labels: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    room = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": spec,
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def make_pod(
    name: str,
    application: str,
    cpu: str = "1",
    queue: str | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ports: Iterable[int] = (),
    **spec: Any,
) -> Object:
    marks = {"applicationId": application, "app": application}
    if queue is not None:
        marks["queue"] = queue
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
        "ports": [{"containerPort": port, "hostPort": port} for port in ports],
    }
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**marks, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"schedulerName": "yunikorn", "containers": [container], "restartPolicy": "Never", **spec},
    }


def make_pods(application: str, count: int, **options: Any) -> list[Object]:
    return [make_pod(f"{application}-{number}", application, **options) for number in range(count)]


def keep_apart(application: str) -> Object:
    """Returns the rule that no pod of *application* may run on the node."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": application}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(application: str) -> list[Object]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": application}},
        }
    ]


def pin_to(node: str) -> Object:
    """Returns the affinity by which the controller of a DaemonSet says where a pod belongs."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{"matchFields": [field]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
