-- Failed and cancelled jobs in the order of lists. A job that completes is in neither, so these cost the usual path nothing.
CREATE INDEX jobs_failed ON jobs (seq) WHERE status = 'failed';
CREATE INDEX jobs_cancelled ON jobs (seq) WHERE status = 'cancelled';
