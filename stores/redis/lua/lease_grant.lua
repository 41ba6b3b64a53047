-- Grants or renews a lease. ARGV: value, milliseconds. Returns the holder.
if left > 0 and value ~= ARGV[1] then
  return {token, value, string.format('%.0f', left)}
end
if left <= 0 then -- microseconds, so that a token also exceeds the tokens of a hash that has expired
  token = string.format('%.0f', math.max((tonumber(token) or 0) + 1, time[1] * 1000000 + time[2]))
end
redis.call('HSET', KEYS[1], 'value', ARGV[1], 'token', token, 'until', string.format('%.0f', now + ARGV[2]))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ARGV[2] + 86400000))
return {token, ARGV[1], ARGV[2]}
