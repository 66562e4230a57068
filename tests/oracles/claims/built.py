"""The statements of the rule that are not judged, because the core does not keep them yet. Whoever builds one switches
it on here."""

GANGS_SAVE_PLACES = False
"""A gang that has waited saves places by age for all its missing members (rules 5 and 6)."""
GANGS_BORROW = False
"""A gang that is placed as a whole uses room that is saved for others (rule 3)."""
LIMITS_SAVE = False
"""A waiter that a limit refuses saves what comes free below it (rule 3)."""
REFUSED_SAVE = False
"""An ask that the shim refuses on every node with room saves room on another one (rule 5)."""
TASKS_GATHER = False
"""Tasks of a group that come again are placed together (rule 6)."""
MEMBERS_REPAIR = False
"""Members that repair a gang come before everybody of the same priority (rule 7)."""
