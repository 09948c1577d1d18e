-- release gives a lease back. It is sent only after the guard has ended, so wherever the owner stands in a
-- displaced list it also says "this owner is dead": its entry is struck out, and the taker is pushed.
--
-- KEYS 1 lock
-- ARGV 1 owner
-- Answer {1} the lock was ours and is gone  {0} it was not ours
local owner = ARGV[1]
local value = redis.call('GET', KEYS[1])
if not value then return {0} end

local head = string.match(value, '^[^;]*')
if head ~= owner and not string.find(value, ';' .. owner .. '@', 1, true) then return {0} end

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

if head == owner or head == '~' then
  if last > 0 then -- a tombstone: the displaced are not to be overlapped by whoever comes next
    redis.call('SET', KEYS[1], '~' .. list, 'PX', math.ceil((last - now) / 1000))
  else
    redis.call('DEL', KEYS[1])
  end
else
  redis.call('SET', KEYS[1], head .. list, 'KEEPTTL')
end
if head == owner then return {1} end
return {0}
