-- acquire asks this node to lease a lock to one owner; one who waits is put in line if it is not to be had.
--
-- KEYS 1 lock  2 marker  3 queue  4 the waiter's wake key, if it waits
-- ARGV 1 owner  2 lease ms  3 proposed fencing token  4 not after, µs of node time  5 fence bucket
--      6 marker as the client last read it  7 quarantined until µs  8 fence floor µs  9 longest lease ms
--      10 clock bound µs  11 '1' to take over
--      12 wake key prefix  13 waiter, '' for one who does not wait  14 its ticket  15 wake key ms
-- Answer {1, now µs, token, displaced list, '1' if it was ours already}  granted
--        {0, now µs, ms left, value, '1' if first}      refused: somebody holds it
--        {-5, now µs, 0, who;ticket}                    refused: it is free, and somebody is before us in line
--        {-1, now µs, ms left} quarantined  {-2, now µs} marker differs  {-3, now µs} arrived too late
--
-- The fence bucket and the wake keys of others are undeclared, and bucket, queue and those wake keys are touched by
-- write commands only: a key that is declared (7.0) or read (7.2+) in here is tracked, and each grant or new waiter
-- would push to every waiter. Whose wake key is touched is only known in here.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if now > tonumber(ARGV[4]) then return {-3, now} end

-- Whoever lost its memory, or runs on another memory than the client saw, has no vote to give.
if redis.call('GET', KEYS[2]) ~= ARGV[6] then return {-2, now} end
local free = tonumber(ARGV[7])
if now < free then return {-1, now, math.ceil((free - now) / 1000)} end

local owner, lease = ARGV[1], tonumber(ARGV[2])
local wakes, me, ticket = ARGV[12], ARGV[13], ARGV[14]

-- first takes the first living waiter out of the line, dropping the dead: their wake key ran out. SETRANGE with
-- nothing to write tells the length of a value as a write command.
local function first()
  for _ = 1, 1000 do
    local head = redis.call('ZPOPMIN', KEYS[3])
    if not head[1] then return nil end
    if head[1] == me or redis.call('SETRANGE', wakes .. head[1], 0, '') > 0 then return head[1], head[2] end
  end
end

-- lineUp puts us in line, says whether we are first, and reads our wake key last of all, which tracks it.
local function lineUp(head, place)
  if me == '' then return '0' end
  redis.call('ZADD', KEYS[3], ticket, me)
  if not head then
    head, place = first()
    redis.call('ZADD', KEYS[3], place, head)
  end
  redis.call('PEXPIRE', KEYS[3], 2 * ARGV[15])
  redis.call('SET', KEYS[4], '0', 'PX', ARGV[15])
  redis.call('GET', KEYS[4])
  return head == me and '1' or '0'
end

local value = redis.call('GET', KEYS[1])
local ours = value and string.sub(value, 1, #owner) == owner
local list = ''

if value and not ours then
  local left = redis.call('PTTL', KEYS[1])
  local longest = tonumber(ARGV[9])
  if left < 0 or left > longest then -- PERSIST, or the clock went back: no live claim exceeds the longest lease
    left = longest
    redis.call('PEXPIRE', KEYS[1], left)
  end
  if ARGV[11] ~= '1' then
    if me == '' then redis.call('GET', KEYS[1]) end
    return {0, now, left, value, lineUp()}
  end
  -- Taking over: carry every owner displaced here whose claim may still be counted by somebody.
  for o, til in string.gmatch(value, ';(%w+)@(%d+)') do
    if o ~= owner and tonumber(til) > now then list = list .. ';' .. o .. '@' .. til end
  end
  if string.sub(value, 1, 1) ~= '~' then
    local displaced = string.match(value, '^%w+') or '0'
    list = list .. ';' .. displaced .. '@' .. string.format('%.0f', now + left * 1000)
  end
  if left > lease then lease = left end -- a lease on a node only ever grows
end

-- Nobody overtakes who began to wait before: by ticket, then by id, as the queue is ordered.
local served
if not ours and ARGV[11] ~= '1' then
  redis.call('SETRANGE', KEYS[1], 0, '') -- writes nothing; but with full memory it is refused, as a first write is
  local head, place = first()
  if head and head ~= me then
    redis.call('ZADD', KEYS[3], place, head)
    local before = tonumber(place) < tonumber(ticket) or tonumber(place) == tonumber(ticket) and head < me
    if me == '' or before then
      lineUp(head, place)
      return {-5, now, 0, head .. ';' .. place}
    end
  end
  served = head == me
end

-- Only a grant needs the identity of the process that executes it; INFO costs 4 µs.
if not string.find(redis.call('INFO', 'server'), 'run_id:' .. string.sub(ARGV[6], 1, 40), 1, true) then
  return {-2, now}
end

local token
if ours then
  -- Asked again: every OK means "renewed just now", or the client would count a lease from a later send.
  redis.call('PEXPIRE', KEYS[1], math.max(lease, redis.call('PTTL', KEYS[1])))
  token = redis.call('INCRBY', ARGV[5], 0)
  list = string.sub(value, #owner + 1)
else
  local claim = owner
  if me ~= '' then claim = owner .. '#' .. ticket end
  redis.call('SET', KEYS[1], claim .. list, 'PX', lease)
  token = tonumber(ARGV[3])
  local highest = now + tonumber(ARGV[10])
  local floor = tonumber(ARGV[8])
  if token > highest then token = highest end
  if token < floor then token = floor end
  local last = redis.call('SET', ARGV[5], string.format('%.0f', token), 'GET')
  last = last and tonumber(last) or 0
  if last >= token then
    token = last + 1
    redis.call('SET', ARGV[5], string.format('%.0f', token))
  end
  if token >= 9007199253692416 then -- 2^53 - 2^20: beyond 2^53 a Lua number no longer counts by ones
    redis.call('DEL', KEYS[1])
    return redis.error_reply('ERR redlock: fencing token of ' .. ARGV[5] .. ' is exhausted')
  end
  if served then redis.call('DEL', KEYS[4]) end
end
redis.call('GET', KEYS[1]) -- last of all: a write after the read would untrack the lock
return {1, now, token, list, ours and '1' or '0'}
