-- Replaces or deletes an entry whose version is known. KEYS[1]: hash of a kind, which contains two fields for
-- each entry, the last version, and the bytes of all entries. ARGV: key, version or 0, whether to delete,
-- value, fields that the hash may contain. Returns 0 if the version differs, -1 if the kind is full.
local version, value = 'v' .. ARGV[1], 'd' .. ARGV[1]
local current = redis.call('HGET', KEYS[1], version) or '0'
if current ~= ARGV[2] then
  return 0
end
local overhead = #ARGV[1] + 64
local bytes = 0 - redis.call('HSTRLEN', KEYS[1], value)
if current ~= '0' then
  bytes = bytes - overhead
end
if ARGV[3] == '1' then
  redis.call('HDEL', KEYS[1], version, value)
else
  if current == '0' and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then
    return -1
  end
  -- The time makes versions grow also after the loss of the key.
  local now = redis.call('TIME')
  local next = math.max((redis.call('HGET', KEYS[1], 's') or 0) + 1, now[1] * 1000000 + now[2])
  next = string.format('%.0f', next)
  redis.call('HSET', KEYS[1], version, next, value, ARGV[4], 's', next)
  bytes = bytes + overhead + #ARGV[4]
end
redis.call('HINCRBY', KEYS[1], 'b', bytes)
return 1
