-- Of jobs whose ids were made by clients: a digest of the request that made them. Null for all others.
ALTER TABLE jobs ADD COLUMN digest bytea;
ALTER TABLE history ADD COLUMN digest bytea;

-- Ids of such jobs that were deleted before their time as a name was over: no second job may get them.
CREATE TABLE spent_ids (
    id         uuid PRIMARY KEY,
    digest     bytea NOT NULL,
    expires_at bigint NOT NULL
);
CREATE INDEX spent_ids_expiry ON spent_ids (expires_at);
