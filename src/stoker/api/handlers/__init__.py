"""What each endpoint does: from a decoded request to the services of the coordinator, and back."""
