-- Returns all fields of a kind. KEYS[1]: hash of a kind. ARGV: bytes that the reply may contain.
local bytes = tonumber(redis.call('HGET', KEYS[1], 'b') or 0)
if bytes > tonumber(ARGV[1]) then
  return bytes
end
return redis.call('HGETALL', KEYS[1])
