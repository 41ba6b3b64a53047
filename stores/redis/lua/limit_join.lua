-- Counts a process, or removes it. KEYS[1]: sorted set of the processes, by their expiry in milliseconds. ARGV: process,
-- milliseconds until it expires, 0 to remove it. Returns how many processes have a lesser name, and the number of
-- processes.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = string.format('%.0f', now + ARGV[2])
if ARGV[2] == '0' then
  redis.call('ZREM', KEYS[1], ARGV[1])
else -- every process joins for the same time, so a later expiry is that of a clock that was ahead
  redis.call('ZADD', KEYS[1], expiry, ARGV[1])
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. expiry, '+inf')
  redis.call('PEXPIRE', KEYS[1], ARGV[2] + 1)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local all, place = redis.call('ZRANGE', KEYS[1], 0, -1), 0
for _, name in ipairs(all) do
  if name < ARGV[1] then
    place = place + 1
  end
end
return {place, #all}
