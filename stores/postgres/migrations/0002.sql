-- Tasks. The columns server and owner_key are digests. Times are milliseconds since 1970; changed is the time
-- of the last change, by the clock of this server.
CREATE TABLE {schema}.tasks (
  server bytea NOT NULL,
  id bytea NOT NULL,
  owner_key bytea NOT NULL,
  owner bytea NOT NULL,
  version bigint NOT NULL,
  created bigint NOT NULL,
  expires bigint NOT NULL,
  done boolean NOT NULL,
  size int NOT NULL,
  data bytea NOT NULL,
  changed timestamptz NOT NULL,
  PRIMARY KEY (server, id)
);
CREATE INDEX tasks_list ON {schema}.tasks (server, owner_key, created, id) INCLUDE (size);
CREATE INDEX tasks_open ON {schema}.tasks (server, id) WHERE NOT done;
CREATE INDEX tasks_done ON {schema}.tasks (server, expires) WHERE done;
CREATE INDEX tasks_expires ON {schema}.tasks (expires);
