"""What if: the rules of placement and preemption tried on the live records, and every change taken back."""
