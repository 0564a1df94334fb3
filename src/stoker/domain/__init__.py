"""What a job is and what may happen to it: pure functions and frozen values, no I/O, no clock, no random."""
