-- Changes the version of the tables. $1: version.
UPDATE {schema}.version SET version = $1
