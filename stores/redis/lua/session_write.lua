-- Stores the record of a session. KEYS[1]: the record, which begins with its version. ARGV: version of the stored
-- record, or nothing to create the record; record; milliseconds until the record expires. Returns 0 if the version
-- differs, -1 if there is no record. The server reports later changes to a connection whose script reads the record.
if ARGV[1] == '' then
  if not redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[3]) then
    return 0
  end
else
  local version = string.match(redis.call('GETRANGE', KEYS[1], 0, 20), '^%d+')
  if not version then
    return -1
  elseif version ~= ARGV[1] then
    return 0
  end
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
redis.call('STRLEN', KEYS[1])
return 1
