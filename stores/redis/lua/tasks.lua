-- The beginning of the scripts of tasks. KEYS are the keys of a store:
-- heads: hash, id to header; data: hash, id to data; list: sorted set of owner, time of creation and id, in
-- this order; open: sorted set of the ids that are not done; ends: sorted set of the ids that are done, by
-- expiry; sums: hash, number and bytes of the tasks of each owner and of all.
local heads, data, list, open, ends, sums = unpack(KEYS)

-- A header contains version, created, expires, done ('true' or 'false'), size, digest of the owner, and owner.
local VERSION, CREATED, EXPIRES, DONE, SIZE, DIGEST, OWNER = 1, 2, 3, 4, 5, 6, 7

local function find(id)
  local packed = redis.call('HGET', heads, id)
  return packed and cmsgpack.unpack(packed)
end

local function count(owner, n, bytes)
  for _, name in ipairs({ owner, 'all' }) do
    if redis.call('HINCRBY', sums, name .. ':n', n) <= 0 then
      redis.call('HDEL', sums, name .. ':n', name .. ':b')
    else
      redis.call('HINCRBY', sums, name .. ':b', bytes)
    end
  end
end

local function write(id, head, value)
  redis.call('HSET', heads, id, cmsgpack.pack(head))
  redis.call('HSET', data, id, value)
  redis.call('ZADD', list, 0, head[DIGEST] .. head[CREATED] .. id)
  if head[DONE] == 'true' then
    redis.call('ZADD', ends, head[EXPIRES], id)
    redis.call('ZREM', open, id)
  else
    redis.call('ZADD', open, 0, id)
    redis.call('ZREM', ends, id)
  end
  for _, key in ipairs(KEYS) do -- keys expire a year after the last change
    redis.call('EXPIRE', key, 365 * 24 * 3600)
  end
end

local function remove(id, head)
  redis.call('HDEL', heads, id)
  redis.call('HDEL', data, id)
  redis.call('ZREM', list, head[DIGEST] .. head[CREATED] .. id)
  redis.call('ZREM', open, id)
  redis.call('ZREM', ends, id)
  count(head[DIGEST], -1, 0 - head[SIZE])
end

local function append(reply, id, head)
  for _, value in ipairs({ id, head[VERSION], head[CREATED], head[EXPIRES], head[DONE], head[OWNER],
    redis.call('HGET', data, id) or '' }) do
    reply[#reply + 1] = value
  end
end
