"""The commands of ``kornel`` that ask a running core, one module for each group of them."""
