-- acquire asks this node to lease a lock to one owner.
--
-- KEYS 1 lock  2 marker
-- ARGV 1 owner  2 lease ms  3 proposed fencing token  4 not after, µs of node time  5 fence bucket
--      6 marker as the client last read it  7 quarantined until µs  8 fence floor µs  9 longest lease ms
--      10 clock bound µs  11 '1' to take over
-- Answer {1, now µs, token, displaced list} granted
--        {0, now µs, ms left, value}        refused: somebody holds it
--        {-1, now µs, ms left} quarantined  {-2, now µs} marker differs  {-3, now µs} arrived too late
--
-- The fence bucket is undeclared and touched by write commands only: a key that is declared (7.0) or read
-- (7.2+) in here would be tracked, and every grant would push to every waiter.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if now > tonumber(ARGV[4]) then return {-3, now} end

-- Whoever lost its memory, or runs on another memory than the client saw, has no vote to give.
if redis.call('GET', KEYS[2]) ~= ARGV[6] then return {-2, now} end
local free = tonumber(ARGV[7])
if now < free then return {-1, now, math.ceil((free - now) / 1000)} end

local owner = ARGV[1]
local lease = tonumber(ARGV[2])
local value = redis.call('GET', KEYS[1])
local list = ''

if value and string.sub(value, 1, #owner) ~= owner then
  local left = redis.call('PTTL', KEYS[1])
  local longest = tonumber(ARGV[9])
  if left < 0 or left > longest then -- PERSIST, or the clock went back: no live claim exceeds the longest lease
    left = longest
    redis.call('PEXPIRE', KEYS[1], left)
  end
  if ARGV[11] ~= '1' then
    redis.call('GET', KEYS[1])
    return {0, now, left, value}
  end
  -- Taking over: carry every owner displaced here whose claim may still be counted by somebody.
  for o, til in string.gmatch(value, ';(%w+)@(%d+)') do
    if tonumber(til) > now then list = list .. ';' .. o .. '@' .. til end
  end
  if string.sub(value, 1, 1) ~= '~' then
    local displaced = string.match(value, '^%w+') or '0'
    list = list .. ';' .. displaced .. '@' .. string.format('%.0f', now + left * 1000)
  end
  if left > lease then lease = left end -- a lease on a node only ever grows
end

-- Only a grant needs the identity of the process that executes it; INFO costs 4 µs.
if not string.find(redis.call('INFO', 'server'), 'run_id:' .. string.sub(ARGV[6], 1, 40), 1, true) then
  return {-2, now}
end

local token
if value and string.sub(value, 1, #owner) == owner then
  -- Asked again: every OK means "renewed just now", or the client would count a lease from a later send.
  if redis.call('PTTL', KEYS[1]) < lease then redis.call('PEXPIRE', KEYS[1], lease) end
  token = redis.call('INCRBY', ARGV[5], 0)
  list = string.sub(value, #owner + 1)
else
  redis.call('SET', KEYS[1], owner .. list, 'PX', lease)
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
end
redis.call('GET', KEYS[1]) -- last of all: a write after the read would untrack the lock
return {1, now, token, list}
