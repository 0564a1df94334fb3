"""The output and progress of jobs in the coordinator: taken from workers, read by requests, deleted with their jobs."""
