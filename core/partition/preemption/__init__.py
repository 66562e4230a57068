"""When victims are looked for, what becomes of a plan, and lowered maxima. The plans: ``core.policies.preemption``."""
