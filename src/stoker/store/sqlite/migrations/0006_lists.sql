-- Failed, cancelled and scheduled jobs in the order of lists. A job that runs at once and completes is in none of these, so they
-- cost the usual path nothing.
CREATE INDEX jobs_failed ON jobs (seq) WHERE status = 'failed';
CREATE INDEX jobs_cancelled ON jobs (seq) WHERE status = 'cancelled';
CREATE INDEX jobs_scheduled ON jobs (seq) WHERE status = 'scheduled';
