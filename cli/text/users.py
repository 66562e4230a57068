"""Writes users and what they hold as text for a terminal."""

from __future__ import annotations

from kornel.cli.text.lines import join_lines
from kornel.cli.text.quantities import format_percent, format_quantities, format_quantity, types_in_order
from kornel.cli.text.tables import Rows, format_table
from kornel.shared.readable_amounts import format_count
from kornel.v1.status_pb2 import PartitionStatus, UserStatus

BY_NAME = "name"
BY_APPLICATIONS = "apps"


class NoSuchOrder(ValueError):
    """Says that users cannot be listed in the order that was asked for."""


def render_users(partition: PartitionStatus, order: str, most: int) -> str:
    """Returns a row for each of the first *most* users in *order*, or for all if *most* is 0. Raises
    :class:`NoSuchOrder`."""
    if not partition.users:
        return "no user holds anything"
    lines = list(format_table(user_rows(partition, order, most)))
    more = len(partition.users) - most if most else 0
    if more > 0:
        lines.append(f"... and {format_count(more, 'more user')}, see --limit")
    return join_lines(lines)


def sort_users(partition: PartitionStatus, order: str) -> list[UserStatus]:
    """Returns the users in *order*: by name, by their number of applications or by a resource type, most in front.

    An empty order goes by the largest share of the cluster that a user holds of any type. Raises :class:`NoSuchOrder`.
    """
    total = partition.total
    types = types_in_order([total, *(user.used for user in partition.users)])
    if order == BY_NAME:
        return sorted(partition.users, key=lambda user: user.user)
    if order == BY_APPLICATIONS:
        return sorted(partition.users, key=lambda user: (-user.application_count, user.user))
    if order in types:
        return sorted(partition.users, key=lambda user: (-user.used.get(order, 0), user.user))
    if order:
        known = ", ".join((BY_NAME, BY_APPLICATIONS, *types))
        raise NoSuchOrder(f"users cannot be sorted by {order!r}, only by {known}")

    def share(user: UserStatus) -> float:
        return max((used / total[name] for name, used in user.used.items() if total.get(name, 0) > 0), default=0.0)

    return sorted(partition.users, key=lambda user: (-share(user), user.user))


def user_rows(partition: PartitionStatus, order: str, most: int) -> Rows:
    """Returns the heading and a row for each user: its number of applications, then the share of the cluster that it
    holds of each type."""
    total = partition.total
    types = types_in_order([total])[:3]
    users = sort_users(partition, order)[: most or None]
    rows = [("user", "apps", *types)]
    for user in users:
        cells = [
            f"{format_quantity(name, user.used.get(name, 0))} ({format_percent(user.used.get(name, 0), total[name])})"
            for name in types
        ]
        rows.append((user.user, str(user.application_count), *(cells or [format_quantities(user.used)])))
    return rows if types else [("user", "apps", "used"), *rows[1:]]
