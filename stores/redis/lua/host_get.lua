-- Returns the version and the value of an entry. KEYS[1]: hash of a kind. ARGV: key, bytes that the reply may
-- contain.
local size = redis.call('HSTRLEN', KEYS[1], 'd' .. ARGV[1])
if size > tonumber(ARGV[2]) then
  return size
end
return redis.call('HMGET', KEYS[1], 'v' .. ARGV[1], 'd' .. ARGV[1])
