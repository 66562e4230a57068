"""The statements of the rule that are not judged, because the core does not keep them yet. Whoever builds one switches
it on here."""

GANGS_SAVE_PLACES = True
"""A gang that has waited saves places by age for all its missing members (rules 5 and 6). Judged where nobody saves
room on nodes, because one gang of a partition does so at a time."""
LIMITS_SAVE = True
"""A waiter that a limit refuses saves what comes free below it (rule 3)."""
MEMBERS_REPAIR = True
"""Members that repair a gang come before everybody of the same priority (rule 7)."""
TASKS_GATHER = True
"""Tasks of a group that come again are placed together (rule 6)."""
