"""The counters of the service, and the interfaces of all that observe what an engine decides and how long it takes."""
