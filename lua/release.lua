-- release gives a lease back and wakes the first in line. Sent after the guard has ended it also says "this owner is
-- dead" wherever the owner stands in a displaced list: its entry is struck out, and the taker is pushed.
--
-- KEYS 1 lock  2 the waiter's wake key, if there is one
-- ARGV 1 owner[#ticket]  2 wake key prefix  3 wake key ms  4 waiter, '' for none  5 its ticket, '' if it leaves the line
--      6 '1' if the guard has ended  7 not after, µs of node time, '0' for any time: what a live guard gives back it
--      may win back later  8 queue
-- Answer {1, woken} the lock was ours and is gone  {0, woken} it was not ours; woken is a waiter, '' for none
--        {-3, ''} arrived too late
if ARGV[7] ~= '0' then
  local t = redis.call('TIME')
  if t[1] * 1000000 + t[2] > tonumber(ARGV[7]) then return {-3, ''} end
end
local claim, me, ticket = ARGV[1], ARGV[4], ARGV[5]
local value = redis.call('GETEX', KEYS[1]) -- a GET that tracks nothing
local ours = value == claim -- the usual case
if ours then
  redis.call('DEL', KEYS[1])
  value = false
elseif value then
  local owner, head = string.match(claim, '^%w+'), string.match(value, '^[^;#]*')
  ours = head == owner
  if ours or ARGV[6] == '1' and string.find(value, ';' .. owner .. '@', 1, true) then
    -- What is left of the list: owners that others displaced and that may still count on their claim.
    local t = redis.call('TIME')
    local now = t[1] * 1000000 + t[2]
    local list, last = '', 0
    for o, til in string.gmatch(value, ';(%w+)@(%d+)') do
      til = tonumber(til)
      if o ~= owner and til > now then
        list = list .. ';' .. o .. '@' .. string.format('%.0f', til)
        if til > last then last = til end
      end
    end
    if not ours and head ~= '~' then
      redis.call('SET', KEYS[1], string.match(value, '^[^;]*') .. list, 'KEEPTTL')
      redis.call('GET', KEYS[1]) -- the taker may be of this same Locker, and tracked by this same connection
    elseif last > 0 then -- a tombstone: the displaced are not to be overlapped by whoever comes next
      redis.call('SET', KEYS[1], '~' .. list, 'PX', math.ceil((last - now) / 1000))
    else
      redis.call('DEL', KEYS[1])
      value = false
    end
  end
end

if me ~= '' and ticket == '' then
  redis.call('ZREM', ARGV[8], me)
  redis.call('DEL', KEYS[2])
end

-- The lock is free: wake the first living waiter, and it alone. It stays in line until it is served.
local woken = ''
if not value then
  for _ = 1, 1000 do
    local first = redis.call('ZPOPMIN', ARGV[8])
    if not first[1] then break end
    if first[1] == me or redis.call('SETRANGE', ARGV[2] .. first[1], 0, '') > 0 then
      redis.call('ZADD', ARGV[8], first[2], first[1])
      redis.call('PEXPIRE', ARGV[8], 2 * ARGV[3])
      if first[1] ~= me then
        woken = first[1]
        redis.call('SET', ARGV[2] .. woken, '1', 'KEEPTTL') -- being woken is no sign of life
      end
      break
    end
  end
end

-- One who lets go to somebody before it stays in line here too. Its wake key is read last, which tracks it.
if me ~= '' and ticket ~= '' then
  redis.call('ZADD', ARGV[8], ticket, me)
  redis.call('PEXPIRE', ARGV[8], 2 * ARGV[3])
  redis.call('SET', KEYS[2], '0', 'PX', ARGV[3])
  redis.call('GET', KEYS[2])
end
return {ours and 1 or 0, woken}
