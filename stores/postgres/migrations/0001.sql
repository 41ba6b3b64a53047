-- Tables of the stores. Keys of unlimited length are stored as SHA-256 digests, because an index entry has at
-- most 2,700 bytes. All texts are bytea: a text of PostgreSQL cannot contain the byte 0, and has a collation.

CREATE SCHEMA IF NOT EXISTS {schema};

-- The version of the tables: the number of the last file.
CREATE TABLE {schema}.version (version int NOT NULL);
INSERT INTO {schema}.version VALUES (0);

-- The state of hosts. A version is never used twice.
CREATE TABLE {schema}.entries (
  kind bytea NOT NULL,
  key bytea NOT NULL,
  version bigint GENERATED ALWAYS AS IDENTITY,
  value bytea NOT NULL,
  PRIMARY KEY (kind, key)
);

-- Logins. The key is a digest of the principal and the key. An update locks its row until the time in locked;
-- holder identifies the last update. A row without a value is only a lock.
CREATE TABLE {schema}.logins (
  key bytea PRIMARY KEY,
  value bytea,
  expires timestamptz NOT NULL,
  holder text NOT NULL,
  locked timestamptz NOT NULL
);
CREATE INDEX logins_expires ON {schema}.logins (expires);
