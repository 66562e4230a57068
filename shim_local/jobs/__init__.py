"""Jobs: their submissions, the state of each task, the store of jobs, and the decisions about them."""
