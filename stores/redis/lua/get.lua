-- Returns the value of KEYS[1] if it has at most ARGV[1] bytes, otherwise its length.
local size = redis.call('STRLEN', KEYS[1])
if size > tonumber(ARGV[1]) then
  return size
end
return redis.call('GET', KEYS[1])
