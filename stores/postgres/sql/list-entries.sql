-- Returns the entries of a kind, $1.
SELECT key, value, version FROM {schema}.entries WHERE kind = $1 ORDER BY key
