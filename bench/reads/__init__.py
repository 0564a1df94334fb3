"""Every GET of the API against a database with millions of jobs: `make reads`."""
