-- Takes units of a budget. KEYS[1]: hash of the period and its taken units, which expires with the period. ARGV: seconds
-- of a period, units of a period, units to take. Returns the units taken now and in this period, the number of the
-- period, and the milliseconds until the period ends.
local time, seconds = redis.call('TIME'), tonumber(ARGV[1])
local period = math.floor(time[1] / seconds)
local used = redis.call('HMGET', KEYS[1], 'period', 'taken')
local taken = 0
if used[1] and tonumber(used[1]) >= period then -- the clock of another server may be ahead
  period, taken = tonumber(used[1]), tonumber(used[2])
end
local units = math.max(0, math.min(tonumber(ARGV[3]), ARGV[2] - taken))
taken = taken + units
local left = math.floor(((period + 1) * seconds - time[1]) * 1000 - time[2] / 1000)
if units > 0 then
  redis.call('HSET', KEYS[1], 'period', string.format('%.0f', period), 'taken', string.format('%.0f', taken))
  redis.call('PEXPIRE', KEYS[1], left + 1)
end
return {units, taken, period, left}
