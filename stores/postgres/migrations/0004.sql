-- Leases of the processes that run the tasks of a server, by the clock of this server.
CREATE TABLE {schema}.leases (
  server bytea NOT NULL,
  holder bytea NOT NULL,
  ends timestamptz NOT NULL,
  PRIMARY KEY (server, holder)
);
