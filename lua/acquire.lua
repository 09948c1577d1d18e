-- acquire asks this node to lease a lock to one owner; one who waits is put in line if it is not to be had.
--
-- KEYS 1 lock  2 marker  3 the waiter's wake key, if it waits
-- ARGV 1 owner[#ticket]  2 lease ms  3 proposed fencing token  4 not after, µs of node time  5 fence bucket
--      6 marker as the client last read it  7 quarantined until µs  8 fence floor µs  9 longest lease ms
--      10 clock bound µs  11 '1' to take over
--      12 queue  13 wake key prefix  14 waiter, '' for one who does not wait  15 its ticket  16 wake key ms
-- Answer {1, now µs, token, displaced list, '1' if it was ours already}  granted; the last two may be left out
--        {0, now µs, ms left, value, '1' if first}                       refused: somebody holds it
--        {-5, now µs, 0, who;ticket}                                     refused: free, and somebody is before us in line
--        {-1, now µs, ms left} quarantined  {-2, now µs} marker differs  {-3, now µs} arrived too late
--
-- Fence bucket, queue and the wake keys of others are undeclared, and touched by write commands only: a key that is
-- declared (7.0) or read (7.2+) in here is tracked, and each grant or new waiter would push to every waiter. Whose wake
-- key is touched is only known in here anyway. For the same reason a grant reads once, and that last of all: what a
-- script reads and then writes is tracked and untracked for nothing.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if now > tonumber(ARGV[4]) then return {-3, now} end

local free = tonumber(ARGV[7])
if now < free then return {-1, now, math.ceil((free - now) / 1000)} end
--IDENTITY--

-- grant makes and stores the fencing token. Whoever lost its memory, or runs on another memory than the client saw, has
-- no vote to give: that is looked at last, and then the lock was never set.
local claim, lease, me, list = ARGV[1], ARGV[2], ARGV[14], ''
local function grant()
  local token, text = tonumber(ARGV[3]), ARGV[3]
  local highest, floor = now + ARGV[10], tonumber(ARGV[8])
  if token > highest or token < floor then
    token = math.max(math.min(token, highest), floor)
    text = string.format('%.0f', token)
  end
  local last = redis.call('SET', ARGV[5], text, 'GET')
  if last and tonumber(last) >= token then
    token = last + 1
    redis.call('SET', ARGV[5], string.format('%.0f', token))
  end
  if token >= 9007199253692416 then -- 2^53 - 2^20: beyond 2^53 a Lua number no longer counts by ones
    redis.call('DEL', KEYS[1])
    return redis.error_reply('ERR redlock: fencing token of ' .. ARGV[5] .. ' is exhausted')
  end
  if redis.call('MGET', KEYS[1], KEYS[2])[2] ~= ARGV[6] then
    redis.call('DEL', KEYS[1])
    return {-2, now}
  end
  if list == '' then return {1, now, token} end
  return {1, now, token, list, '0'}
end

-- The lock first: with full memory it is the first write that is refused. And free with nobody in line is the usual case.
local head
if redis.call('SET', KEYS[1], claim, 'NX', 'PX', lease) then
  if ARGV[11] == '1' then return grant() end -- takeovers ignore the line
  head = redis.call('ZPOPMIN', ARGV[12])
  if not head[1] then return grant() end
  redis.call('DEL', KEYS[1])
end
if redis.call('GETEX', KEYS[2]) ~= ARGV[6] then
  if head then redis.call('ZADD', ARGV[12], head[2], head[1]) end
  return {-2, now}
end

-- first takes the first living waiter out of the line, dropping the dead: their wake key ran out. SETRANGE with nothing
-- to write tells the length of a value as a write command.
local function first(h)
  for _ = 1, 1000 do
    h = h or redis.call('ZPOPMIN', ARGV[12])
    if not h[1] then return nil end
    if h[1] == me or redis.call('SETRANGE', ARGV[13] .. h[1], 0, '') > 0 then return h[1], h[2] end
    h = nil
  end
end

-- lineUp puts us in line, says whether we are first, and reads our wake key last of all, which tracks it.
local function lineUp()
  if me == '' then return '0' end
  redis.call('ZADD', ARGV[12], ARGV[15], me)
  local who, place = first()
  redis.call('ZADD', ARGV[12], place, who)
  redis.call('PEXPIRE', ARGV[12], 2 * ARGV[16])
  redis.call('SET', KEYS[3], '0', 'PX', ARGV[16])
  redis.call('GET', KEYS[3])
  return who == me and '1' or '0'
end

-- Nobody overtakes who began to wait before: by ticket, then by id, as the queue is ordered.
if head then
  local who, place = first(head)
  if who and who ~= me then
    redis.call('ZADD', ARGV[12], place, who)
    local mine, theirs = tonumber(ARGV[15]), tonumber(place)
    if me == '' or theirs < mine or theirs == mine and who < me then
      lineUp()
      return {-5, now, 0, who .. ';' .. place}
    end
  elseif who then
    redis.call('DEL', KEYS[3])
  end
  redis.call('SET', KEYS[1], claim, 'PX', lease)
  return grant()
end

local value = redis.call('GETEX', KEYS[1])
local owner = string.match(claim, '^%w+')
if string.sub(value, 1, #owner) == owner then
  -- Asked again: every OK means "renewed just now", or the client would count a lease from a later send.
  redis.call('PEXPIRE', KEYS[1], math.max(tonumber(lease), redis.call('PTTL', KEYS[1])))
  local token = redis.call('INCRBY', ARGV[5], 0)
  redis.call('GET', KEYS[1])
  return {1, now, token, string.sub(value, #owner + 1), '1'}
end

local left, longest = redis.call('PTTL', KEYS[1]), tonumber(ARGV[9])
if left < 0 or left > longest then -- PERSIST, or the clock went back: no live claim exceeds the longest lease
  left = longest
  redis.call('PEXPIRE', KEYS[1], left)
end
if ARGV[11] ~= '1' then
  if me == '' then redis.call('GET', KEYS[1]) end
  return {0, now, left, value, lineUp()}
end

-- Taking over: carry every owner displaced here whose claim may still be counted by somebody. A lease on a node only
-- ever grows.
for o, til in string.gmatch(value, ';(%w+)@(%d+)') do
  if o ~= owner and tonumber(til) > now then list = list .. ';' .. o .. '@' .. til end
end
if string.sub(value, 1, 1) ~= '~' then
  list = list .. ';' .. (string.match(value, '^%w+') or '0') .. '@' .. string.format('%.0f', now + left * 1000)
end
redis.call('SET', KEYS[1], claim .. list, 'PX', math.max(tonumber(lease), left))
return grant()
