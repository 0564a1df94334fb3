-- Finding jobs by their names. Most have none, and then this costs nothing.
CREATE INDEX jobs_name ON jobs (name) WHERE name IS NOT NULL;
