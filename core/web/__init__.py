"""The web page at ``/``: plain files for a browser, which asks the REST interface for everything else."""
