-- vacant returns how many slots of a semaphore are free, by commands that track nothing; key is that of any slot.
vacant = function(key, slots)
  local n, base = 0, string.match(key, '^.*}')
  for i = 1, tonumber(slots) do
    if redis.pcall('SETRANGE', base .. i, 0, '') == 0 then n = n + 1 end
  end
  return n
end
