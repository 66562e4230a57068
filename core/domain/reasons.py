"""Why something was refused: closed sets of tokens, the same in responses, logs, REST and tests."""

from __future__ import annotations

from enum import StrEnum


class Rejection(StrEnum):
    """Why a request entry was turned away (protocol.md 6.1, 7, 8.1)."""

    PARTITION_NOT_FOUND = "partition-not-found"
    PARTITION_NOT_ACTIVE = "partition-not-active"
    INVALID_ID = "invalid-id"
    INVALID_KEY = "invalid-key"
    INVALID_RESOURCE = "invalid-resource"
    USER_INVALID = "user-invalid"
    APPLICATION_EXISTS = "application-exists"
    NO_QUEUE = "no-queue"
    QUEUE_NOT_LEAF = "queue-not-leaf"
    GANG_NEEDS_FIFO = "gang-needs-fifo"
    GANG_TOO_LARGE = "gang-too-large"
    NODE_EXISTS = "node-exists"
    NODE_NOT_FOUND = "node-not-found"
    APPLICATION_NOT_FOUND = "application-not-found"
    APPLICATION_STATE = "application-state"
    NO_RESOURCES = "no-resources"
    NEGATIVE_RESOURCES = "negative-resources"
    KEY_IN_USE = "key-in-use"
    PLACEHOLDER_WITHOUT_GROUP = "placeholder-without-group"
    FOREIGN_WITHOUT_NODE = "foreign-without-node"
    MAX_ALLOCATIONS = "max-allocations"


class Ignored(StrEnum):
    """Why a request entry that is never answered had no effect (protocol.md 15)."""

    UNKNOWN_PARTITION = "unknown-partition"
    UNKNOWN_NODE = "unknown-node"
    UNKNOWN_APPLICATION = "unknown-application"
    UNKNOWN_KEY = "unknown-key"
    """Nothing has this key, or not any more."""
    UNKNOWN_ACTION = "unknown-action"
    """A node action that is no action."""
    INVALID_RESOURCE = "invalid-resource"
    """A node update that cannot be booked."""
    OTHER_NODE = "other-node"
    """A report of an allocation that runs on another node."""
    NOT_APPLICABLE = "not-applicable"
    """A termination type that means nothing for what it names."""
    CONFIRMATION = "confirmation"
    """A confirmation that something pending is gone, which it is not or was already."""
    NO_CHANGE = "no-change"
    """What the entry asks for is so already."""


class Unschedulable(StrEnum):
    """Why a pending ask was not placed (scheduling.md 17)."""

    APPLICATION_LIMIT = "application-limit"
    """Not one of the spec's tokens: the application may not start yet (scheduling.md 12)."""
    USER_QUOTA = "user-quota"
    QUEUE_QUOTA = "queue-quota"
    NO_FITTING_NODE = "no-fitting-node"
    REFUSED_BY_PREDICATE = "refused-by-predicate"
    REQUIRED_NODE = "required-node"


class Outcome(StrEnum):
    """How an attempt to preempt ended (preemption.md I)."""

    TRIGGERED = "TRIGGERED"
    ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"
    ASK_MAY_NOT_PREEMPT = "ASK_MAY_NOT_PREEMPT"
    ALREADY_TRIGGERED = "ALREADY_TRIGGERED"
    REQUIRED_NODE = "REQUIRED_NODE"
    TOO_YOUNG = "TOO_YOUNG"
    CHECKED_RECENTLY = "CHECKED_RECENTLY"
    NO_GUARANTEE = "NO_GUARANTEE"
    ASK_EXCEEDS_GUARANTEE = "ASK_EXCEEDS_GUARANTEE"
    NOT_UNDER_GUARANTEE = "NOT_UNDER_GUARANTEE"
    FENCED_AT_LEAF = "FENCED_AT_LEAF"
    NO_CANDIDATES = "NO_CANDIDATES"
    NO_NODE = "NO_NODE"
    PREDICATE_REFUSED = "PREDICATE_REFUSED"
    VICTIM_RELEASED = "VICTIM_RELEASED"
    NOTIFIED = "NOTIFIED"
    """Periodic policy: these will have to go, unless their queue shrinks in time."""
    WITHDRAWN = "WITHDRAWN"
    """Periodic policy: these need not go any more."""
    OBSERVED = "OBSERVED"
    """Periodic policy: these would have been notified, but it only observes."""
    LAW_BROKEN = "LAW_BROKEN"
    """Our own bug: a plan was refused because it broke a law. Counted, never applied."""
    NO_VICTIM_REQUIRED_NODE = "NO_VICTIM_REQUIRED_NODE"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    """A lowered max is met, or guarantees forbid to enforce any of it."""
    FULL = "FULL"
    """A lowered max is met once the victims are gone."""
    BEST_EFFORT = "BEST_EFFORT"
    """What the victims leave above a lowered max is within what may be missed."""
    PARTIAL = "PARTIAL"
    """More than may be missed stays above a lowered max: guarantees, or tasks that never go."""
    NONE = "NONE"
    """Nobody can go, so nothing is enforced of a lowered max."""
