-- Finding jobs by their names. Most have none, and then this costs nothing.
CREATE INDEX jobs_name ON jobs (name) WHERE name IS NOT NULL;

-- How a failed job failed. Those that failed before this column are one group per type.
ALTER TABLE jobs ADD COLUMN fingerprint TEXT;
UPDATE jobs SET fingerprint = 'earlier:' || type WHERE status = 'failed';
CREATE INDEX jobs_fingerprint ON jobs (fingerprint, discarded_at, completed_at) WHERE status = 'failed';
