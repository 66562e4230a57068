"""Says of settings of YARN without a counterpart what to do by hand, and what will surprise."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

_USERS = (
    "none; all users have equal shares; by hand, `limits: [{limit: ann, users: [ann], maxresources: {...}}]` on the"
    " queue keeps one of them from more"
)
_LABELS = (
    "none; by hand, a partition of its own for the nodes of an exclusive label, or predicates of the shim for one that"
    " is shared"
)
_SHIM = "none; this is up to the shim"
_PACE = "none needed; the core places an ask when it arrives, and waits for no heartbeat"

CONVERTED: Final = frozenset(
    {
        "queues", "capacity", "maximum-capacity", "acl_submit_applications", "acl_administer_queue", "ordering-policy",
        "priority", "disable_preemption", "state", "maximum-applications", "max-parallel-apps",
        "auto-create-child-queue.enabled", "auto-queue-creation-v2.enabled", "maximum-am-resource-percent",
        "user-limit-factor", "minimum-user-limit-percent",
    }
)  # fmt: skip
"""The settings of a queue that are converted."""

ADVICE: Final = (
    (("user-settings.*",), _USERS),
    (("accessible-node-label*", "default-node-label*"), _LABELS),
    (
        ("maximum-allocation", "minimum-allocation", "maximum-allocation-*", "minimum-allocation-*"),
        "none; an ask that is larger than every node waits, and `kornel explain` says so",
    ),
    (("intra-queue-preemption.*",), "none; inside a leaf nobody is preempted for a guarantee"),
    (("*enable-size-based-weight",), "none; `fair` compares what applications hold, whatever they ask for"),
    (("maximum-application-lifetime", "default-application-lifetime"), "none; ending applications is up to the shim"),
    (
        ("default[-_]application[-_]*priority", "acl[-_]application[-_]*priority", "workflow-priority-mappings*"),
        "none; the shim gives each ask its priority, and the queue may add `priority.offset`",
    ),
    (
        ("resource-calculator",),
        "none; all resource types count when asks are placed and queues are compared, not memory alone",
    ),
    (("node-locality*", "rack-locality*", "offswitch*"), _SHIM),
    (("schedule-asynchronously*", "per-node-heartbeat*", "*multi-node*"), _PACE),
    (
        ("reserv*", "*reservation*"),
        "none; an ask that waits long has room held for it, and nobody books ahead",
    ),
    (
        ("maximum-applications",),
        "queues may have `maxapplications`; it counts running applications, and those that wait are not refused",
    ),
    (("mapping-rule-json*",), "not converted; by hand, `placementrules`: see docs/from-yarn.md"),
    (
        ("*auto-queue-creation-v2.*", "*auto-create-child-queue.*"),
        "not converted; queues that a rule creates get the `childtemplate` of their parent, and go when empty",
    ),
    (("*template.*",), "not converted; `childtemplate` has amounts, `maxapplications` and properties"),
)


def find_advice(key: str) -> str:
    """Returns what to do about the setting *key*, which is not converted."""
    of_a_queue = "." in key and key.rpartition(".")[2] in CONVERTED
    unknown = "no list of queues names it; left out" if of_a_queue else "not known to this command; left out"
    return next((said for patterns, said in ADVICE if any(fnmatchcase(key, each) for each in patterns)), unknown)
