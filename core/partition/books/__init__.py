"""Every amount: booked in one place, reckoned again from scratch in another."""
