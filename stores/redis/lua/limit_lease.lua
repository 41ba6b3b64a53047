-- Takes units of a budget. KEYS[1]: hash of the period, its taken units, and the number and units of the last lease of
-- each process, which expires with the period. ARGV: process, number of the lease, seconds of a period, units of a
-- period, units to take. Returns the units taken now and in this period, the number of the period, and the milliseconds
-- until the period ends. A repeated number returns the units of its lease.
local time, seconds = redis.call('TIME'), tonumber(ARGV[3])
local period, lease, number = math.floor(time[1] / seconds), 'lease:' .. ARGV[1], tonumber(ARGV[2])
local used = redis.call('HMGET', KEYS[1], 'period', 'taken', lease)
local stored, taken, last, units = tonumber(used[1] or -1), 0, 0, 0
if stored == period or stored == period + 1 then -- the clock of another server may be ahead
  period, taken = stored, tonumber(used[2])
  local n, former = string.match(used[3] or '0 0', '(%d+) (%d+)')
  last = tonumber(n)
  units = number == last and tonumber(former) or 0
else
  redis.call('DEL', KEYS[1])
end
local left = math.floor(((period + 1) * seconds - time[1]) * 1000 - time[2] / 1000)
local new = math.max(0, math.min(tonumber(ARGV[5]), ARGV[4] - taken))
if number > last and new > 0 then
  units, taken = new, taken + new
  redis.call('HSET', KEYS[1], 'period', string.format('%.0f', period), 'taken', string.format('%.0f', taken), lease,
    string.format('%.0f %.0f', number, units))
  redis.call('PEXPIRE', KEYS[1], left + 1)
end
return {units, taken, period, left}
