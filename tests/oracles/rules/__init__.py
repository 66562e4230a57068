"""The rules of every kind of preemption a second time, plain and slow, written from their words alone.

Nothing here was taken from the planners, the laws or the schedulers of the core, and nothing may be: what two people
worked out apart is worth comparing. There are no indexes. Every sum is added up again whenever somebody asks for it.

world         what there is: queues, nodes, tasks, and the books that follow the effects of an engine
arithmetic    plain sums, priorities as they appear elsewhere, fences, needs, and the search over all subsets
guarantee     an ask below a guarantee takes from queues above theirs
gang_units    a gang below its guarantee, all or nothing, and gangs that lose as a whole
required_node a task that runs on one node only
lowered_max   a max that was lowered below what its queue uses
monitor       the periodic policy, as far as it can be judged from outside

Where the words allow two readings, a decision passes if either allows it, and a plan counts as missed only if both
find one. Each such place says so under "Two readings".
"""
