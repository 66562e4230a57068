"""Attacks on a served core, each with what it may cost. ``make hostile`` runs them; ``make test`` does not."""
