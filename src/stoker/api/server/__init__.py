"""Server plumbing: connections, requests and their limits, routing, who may ask. Knows no job."""
