-- release gives a lease back and wakes the first in line. Sent after the guard has ended it also says "this owner is
-- dead" wherever the owner stands in a displaced list: its entry is struck out, and the taker is pushed.
--
-- key lock  claim owner[#ticket]  queue  me the waiter, '' for none  ticket of it, '' if it leaves the line
-- ended '1' if the guard has ended, else '0'; behind it the owner that ours gives its place back to, if any
-- notAfter µs of node time, '0' for any time: what a live guard gives back it may win back later
-- keep for how long nobody else is to have the lock, ms  slots of a semaphore's slot: how many the semaphore has
-- rw 'r' for a reader, 'w' for a writer: then woken may be several, separated by commas
-- Returns 1, woken  the lock was ours and is gone   0, woken  it was not ours; woken is a waiter, '' for none
--         -3, ''  arrived too late
if notAfter ~= '0' and clock() > tonumber(notAfter) then return answer(-3, '') end
local value = redis.call('GETEX', key) -- a GET that tracks nothing
if #ended > 1 and value then
  local owner = string.match(claim, '^%w+')
  if string.sub(value, 1, #owner) == owner then
    redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), 1)) -- first: a full memory does not refuse that
    redis.call('SET', key, string.sub(ended, 2) .. string.sub(value, #owner + 1), 'KEEPTTL')
    return answer(1, '')
  end
end
if me ~= '' and ticket == '' and value then -- what it has asked of the holder
  local from, to = string.find(value, ';?' .. me .. '@', 1, true)
  if from then
    value = string.sub(value, 1, from - 1) .. string.gsub(string.sub(value, to + 1), '^%d+', '')
    redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), 1))
    redis.call('SET', key, value, 'KEEPTTL')
  end
end
local ours = value == claim -- the usual case
if ours and keep == '0' then
  redis.call('DEL', key)
  value = false
elseif value then
  local owner, head = string.match(claim, '^%w+'), string.match(value, '^[%w~]*')
  ours = head == owner
  if ours or ended ~= '0' and string.find(value, ';' .. owner .. '@', 1, true) then
    -- What is left of the list: owners that others displaced and that may still count on their claim.
    local now = clock()
    local list, last = '', 0
    for o, til in string.gmatch(value, ';(%w+)@(%d+)') do
      til = tonumber(til)
      if o ~= owner and til > now then
        list = list .. ';' .. o .. '@' .. string.format('%.0f', til)
        if til > last then last = til end
      end
    end
    if ours and keep ~= '0' then
      redis.call('PEXPIRE', key, math.max(tonumber(keep), math.ceil((last - now) / 1000))) -- first: a full memory lets it through, and what follows
      redis.call('SET', key, '~' .. (string.match(value, '^[%w#]*(![^;]*)') or '!' .. keep) .. list, 'KEEPTTL')
      value = false -- one who takes it over all the same is first in line
    elseif not ours and (head ~= '~' or string.sub(value, 2, 2) == '!') then
      redis.call('SET', key, string.match(value, '^[^;]*') .. list, 'KEEPTTL')
      read(key) -- the taker may be of this same Locker, and tracked by this same connection
    elseif last > 0 then -- a tombstone: the displaced are not to be overlapped by whoever comes next
      redis.call('SET', key, '~' .. list, 'PX', math.ceil((last - now) / 1000))
    else
      redis.call('DEL', key)
      value = false
    end
  end
end

if rw == 'r' then
  local base, reader = string.match(key, '^(.*})(.*)$')
  if value or ours and keep ~= '0' then -- it is kept
    longer(base .. 'readers', keep)
  else
    redis.call('ZREM', base .. 'readers', reader)
  end
end

if me ~= '' and ticket == '' then
  redis.call('ZREM', queue, me)
  redis.call('DEL', wakes .. me)
end

-- The lock is free: wake the first living waiter, and it alone. It stays in line until it is served. Of a semaphore as many
-- as there are free slots may have one: the last of those is woken, the others have been.
local woken = waiting and rw and callIn(key, queue, me) or ''
if waiting and not rw and (not value or slots) then
  local open, living, first = 1, {}, redis.call('ZPOPMIN', queue)
  if first[1] then
    --LINE--
    if slots then open = vacant(key, slots) end
  end
  while first[1] do
    if first[1] == me or redis.call('SETRANGE', wakes .. first[1], 0, '') > 0 then -- the dead are dropped, however many
      living[#living + 1] = first
      if first[1] ~= me and open > 0 then woken = first[1] end
      if #living >= open then break end
    end
    first = redis.call('ZPOPMIN', queue)
  end
  for _, w in ipairs(living) do stand(queue, w[1], w[2]) end
  if #living == 0 and redis.pcall('GETEX', wakes) == queue then redis.call('DEL', wakes) end
  if woken ~= '' then
    redis.call('SET', wakes .. woken, '1', 'KEEPTTL') -- being woken is no sign of life
  end
end

-- One who lets go to somebody before it stays in line here too. Its wake key is read last, which tracks it.
if me ~= '' and ticket ~= '' then
  --LINE--
  stand(queue, me, ticket)
  redis.call('SET', wakes .. me, '0', 'PX', wakeMillis)
  read(wakes .. me)
end
return answer(ours and 1 or 0, woken)
