-- Stores a request state. $1: key, $2: state, $3: time until the state expires.
INSERT INTO {schema}.states (key, value, expires) VALUES ($1, $2, now() + $3)
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, expires = EXCLUDED.expires
