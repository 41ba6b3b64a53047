-- Returns the holder of a lease, or nothing. KEYS: the lease.
if left <= 0 then
  return {}
end
return {token, value, string.format('%.0f', left)}
