"""Where jobs live. The store is the truth, and its clock is the only one that judges leases."""
