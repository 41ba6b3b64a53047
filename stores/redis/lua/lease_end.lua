-- Ends the lease with a token. ARGV: token.
if left > 0 and token == ARGV[1] then
  redis.call('HSET', KEYS[1], 'until', '0')
end
return 1
