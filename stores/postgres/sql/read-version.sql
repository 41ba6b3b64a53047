-- Returns the version of the tables.
SELECT version FROM {schema}.version
