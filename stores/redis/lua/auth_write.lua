-- Writes or deletes a record. KEYS[1]: the value. ARGV: condition (put for none, new if the record must not
-- exist, old if the record must have the old value); old value; new value; milliseconds until the record
-- expires, 0 for never, -1 to delete the record. Returns 0 if the condition does not hold.
if ARGV[1] ~= 'put' then
  local current = redis.call('GET', KEYS[1])
  if ARGV[1] == 'new' and current or ARGV[1] == 'old' and current ~= ARGV[2] then
    return 0
  end
end
if ARGV[4] == '-1' then
  redis.call('DEL', KEYS[1])
elseif ARGV[4] == '0' then
  redis.call('SET', KEYS[1], ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
end
return 1
