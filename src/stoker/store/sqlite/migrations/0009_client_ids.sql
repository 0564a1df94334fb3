-- Of jobs whose ids were made by clients: a digest of the request that made them. Null for all others.
ALTER TABLE jobs ADD COLUMN digest BLOB;

-- Ids of such jobs that were deleted before their time as a name was over: no second job may get them.
CREATE TABLE spent_ids (
    id         TEXT PRIMARY KEY,
    digest     BLOB NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX spent_ids_expiry ON spent_ids (expires_at);
