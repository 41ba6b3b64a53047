-- Returns the numbers of known tasks in a list of ids, from 1, with their versions. $1: server, $2: ids.
SELECT l.number, t.version FROM unnest($2::bytea[]) WITH ORDINALITY AS l (id, number)
JOIN {schema}.tasks AS t ON t.server = $1 AND t.id = l.id
