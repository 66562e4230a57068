"""What the core answers, as text: one file of scenarios per subject, played by one runner."""
