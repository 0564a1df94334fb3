"""A small shop: customers order over REST, and jobs charge their cards, send receipts and write a report every night."""
