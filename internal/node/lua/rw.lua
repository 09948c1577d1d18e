-- What the steps of a reader-writer lock need beyond those of a lock; base is the writer's key, rw is 'r' or 'w'. The index of
-- readers says where to look; who is there is said by the keys themselves. It is touched by write commands only, as the line is.

-- reading returns the key of the first reader that is there, and drops those before it that are gone, however many. The empty
-- member comes last, so that the index is not emptied, and its end not lost, while there may be a reader.
reading = function(base)
  local index = base .. 'readers'
  local reader = redis.call('ZPOPMIN', index)
  while reader[1] and reader[1] ~= '' do
    if redis.call('SETRANGE', base .. reader[1], 0, '') > 0 then
      redis.call('ZADD', index, reader[2], reader[1])
      return base .. reader[1]
    end
    reader = redis.call('ZPOPMIN', index)
  end
end

-- longer has the index last for so many ms at least. One that has no end keeps none.
longer = function(index, ms)
  --LONGER--
end

-- enlist puts a reader into the index, which is not to end before its key.
enlist = function(key, ms)
  local base, reader = string.match(key, '^(.*})(.*)$')
  local index = base .. 'readers'
  local fresh = redis.call('ZADD', index, 'inf', '') == 1
  redis.call('ZADD', index, string.format('%.0f', now / 1000 + tonumber(ms)), reader)
  if fresh then
    redis.call('PEXPIRE', index, ms)
  else
    longer(index, ms)
  end
end

-- hinders returns the key of who is in the way, if anybody is: of a reader a writer that is not of its own party, of a writer
-- any reader. What it begins with is refused by a full memory.
hinders = function(key, claim, rw)
  local base = string.match(key, '^.*}')
  local written = redis.call('SETRANGE', base, 0, '') > 0
  if rw == 'w' then return not written and reading(base) or nil end
  if written and string.sub(redis.call('GETEX', base), 2, 16) ~= string.sub(claim, 2, 16) then return base end
end

-- callIn wakes those in line who may come in: the readers before the first writer, or that writer if it is first and nobody
-- is there. It returns them, separated by commas.
callIn = function(key, queue, me)
  local base = string.match(key, '^.*}')
  local reader = reading(base)
  if redis.call('SETRANGE', base, 0, '') > 0 then return '' end
  local living, called, first = {}, {}, redis.call('ZPOPMIN', queue)
  while first[1] do
    if first[1] == me or redis.call('SETRANGE', wakes .. first[1], 0, '') > 0 then
      living[#living + 1] = first
      local writes = string.sub(first[1], 1, 1) ~= 'r'
      if first[1] ~= me and (not writes or #living == 1 and not reader) then called[#called + 1] = first[1] end
      if writes then break end
    end
    first = redis.call('ZPOPMIN', queue)
  end
  for _, w in ipairs(living) do stand(queue, w[1], w[2]) end
  if #living == 0 and redis.pcall('GETEX', wakes) == queue then redis.call('DEL', wakes) end
  for _, w in ipairs(called) do redis.call('SET', wakes .. w, '1', 'KEEPTTL') end
  return table.concat(called, ',')
end
