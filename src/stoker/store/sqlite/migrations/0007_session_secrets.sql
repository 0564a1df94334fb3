-- SHA-256 of the secret with which a session began: who goes on with it must know that. Null for workers that have none.
ALTER TABLE sessions ADD COLUMN secret_hash BLOB;
