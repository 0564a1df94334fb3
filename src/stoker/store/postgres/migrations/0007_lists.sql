-- Failed, cancelled and scheduled jobs in the order of lists. A job that runs at once and completes is in none of these, so they
-- cost the usual path nothing.
CREATE INDEX history_failed ON history (seq) WHERE status = 'failed';
CREATE INDEX history_cancelled ON history (seq) WHERE status = 'cancelled';
CREATE INDEX jobs_scheduled ON jobs (seq) WHERE status = 'scheduled';
CREATE INDEX jobs_blocked ON jobs (seq) WHERE status = 'blocked';
