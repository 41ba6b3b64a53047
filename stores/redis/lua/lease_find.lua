-- Returns the holder of a lease, or nothing.
if left <= 0 then
  return {}
end
return {token, value, string.format('%.0f', left)}
