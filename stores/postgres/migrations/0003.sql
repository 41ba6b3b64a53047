-- Records of authorization servers. The key is a digest of the kind and the key. A version is never used twice.
-- A record without a time in expires does not expire.
CREATE TABLE {schema}.records (
  key bytea PRIMARY KEY,
  version bigint GENERATED ALWAYS AS IDENTITY,
  value bytea NOT NULL,
  expires timestamptz
);
CREATE INDEX records_expires ON {schema}.records (expires);

-- Request states, which are encrypted: compression would be in vain. The key is a digest.
CREATE TABLE {schema}.states (
  key bytea PRIMARY KEY,
  value bytea NOT NULL,
  expires timestamptz NOT NULL
);
ALTER TABLE {schema}.states ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE INDEX states_expires ON {schema}.states (expires);

-- Request states that were used. The key is a digest.
CREATE TABLE {schema}.uses (
  key bytea PRIMARY KEY,
  expires timestamptz NOT NULL
);
CREATE INDEX uses_expires ON {schema}.uses (expires);
