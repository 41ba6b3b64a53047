-- Returns an entry. $1: kind, $2: key.
SELECT value, version FROM {schema}.entries WHERE kind = $1 AND key = $2
