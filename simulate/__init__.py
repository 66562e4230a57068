"""Plays workloads on the production engine in virtual time, and compares what configurations make of them.

From the lowest to the highest; each module imports only those above it in this list:

    virtual_time    the clock, and what is to be done later
    simulated_core  an engine, called as the service calls it, whose messages are those of si.v1
    figures         what became of the tasks
    playing         the model of a cluster and the core, one event after the other
    workloads       scenarios, traces and generated weeks as one kind of input
    comparing       configurations on the same workloads
    report          tables, and a summary in words
    command         ``kornel simulate``

The model is that of :mod:`kornel.shim_mock.model`. Neither it nor the engine knows this package.
"""
