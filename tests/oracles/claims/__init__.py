"""The rule of claims a second time, from its words alone: who may have room, and who comes first.

scene   the cluster as a shim and an administrator see it at one moment
order   who comes before whom, and who is owed a guarantee
limits  what keeps an ask back that is not room on nodes
room    what of a node an ask may have
domains in which racks a group that requires one may stand
built   which statements of the rule are not judged yet
checks  one function for each statement of the rule; each returns findings

Nothing here was taken from the core. Sums are added up again for every question. Where words allow two readings, or
the public books do not say enough, a check stays silent: a finding is one under every reading.
"""
