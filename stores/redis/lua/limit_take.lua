-- Takes tokens of a bucket by the generic cell rate algorithm. KEYS[1]: when the bucket contains all tokens again, in
-- microseconds. ARGV: microseconds between two tokens, tokens of a full bucket, tokens to take. Returns the tokens that
-- were taken, the tokens that are left, and the microseconds until there is a token.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local every, size = tonumber(ARGV[1]), ARGV[1] * ARGV[2]
local full = tonumber(redis.call('GET', KEYS[1]) or now)
full = math.min(math.max(full, now), now + size) -- the clock of another server may be ahead
local wait = full + every - size - now
if wait >= 1 then
  return {0, 0, math.ceil(wait)}
end
local tokens = math.max(1, math.floor((size - (full - now)) / every + 0.001))
local taken = math.min(tokens, tonumber(ARGV[3]))
full = full + every * taken
redis.call('SET', KEYS[1], string.format('%.3f', full), 'PX', math.ceil((full - now) / 1000) + 1)
return {taken, tokens - taken, 0}
