-- Extends the life of a session. KEYS[1]: the record. ARGV: milliseconds that the record must last; milliseconds
-- until the record expires if it must be extended. Returns -1 if there is no record. The server reports an extension
-- to other connections that read the record, so most calls must not extend it.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  return -1
end
if left < tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('STRLEN', KEYS[1]) -- this connection reads the record again
end
return 1
