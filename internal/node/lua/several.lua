-- One step of a lock of several names, on all of them: docs/several-names.md. What is not the same is as with one name.
--
-- acquire writes every key or none: it looks at all of them and at their lines first. A waiter that is refused is put in all lines.
-- extend renews every key or none. It deletes none either: whoever is given a name here could hold it before its holder has heard.
-- release gives back each that is ours, whatever becomes of the others.
--
-- KEYS 1 marker, the locks, the waiter's wake key if there is one
-- ARGV 1 to 8 as in batch.lua  9 'acquire all', 'extend all' or 'release all'  10 owner[#ticket]  11 not after µs of node time, of a release '0' for any time
--      12 the waiter, '' for none  13 lease ms; release: for how long to keep the locks from others
--      14 proposed fencing token, or the one to be stored; release: ticket of who stays in line, else ''
--      15 extend: '1' where absent keys may be won back; release: ended, as release takes it  16 and on: fence bucket of each name
-- Answer {code, now µs, fencing token or ms left, what follows the owner in lists or who was woken, '1' if nobody is before us in any line,
--      the marker if a renewal finds another, how many are ours although the answer is no,
--      then of each name that is in the way: its number, 0 held or -5 somebody is before us in line, ms left, value or who;ticket}
--      Codes are those of acquire, extend, release; -5 if all that is in the way are lines. There is one fencing token for all names.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local free, floor, longest, bound = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local fences, queues, wakes, wakeMillis = ARGV[6] .. ':fence:', ARGV[6] .. ':queue:', ARGV[7], ARGV[8]
local what, claim, notAfter, me, lease, token, how = unpack(ARGV, 9, 15)
local owner, names = string.match(claim, '^%w+'), #ARGV - 15

if what == 'acquire all' then -- before the first write, behind which a full memory refuses nothing in a script
  local full = redis.pcall('SETRANGE', wakes, 0, '')
  if type(full) == 'table' and string.find(full.err, 'OOM', 1, true) then return full end
end
local marker = redis.pcall('GETEX', KEYS[1])
if type(marker) == 'table' and not string.find(marker.err, 'WRONGTYPE', 1, true) then return marker end
local same = marker == ARGV[1]
local differs = ''
if not same and type(marker) == 'string' then differs = marker end
--PROCESS--

-- What is read last is tracked, by one read.
local tracked = {KEYS[1]}
local function read(key) tracked[#tracked + 1] = key end
local function clock() return now end
local stand, waiting = nil, true
--PROLONG--
--STAND--
local function release(key, claim, queue, me, ticket, ended, notAfter, keep, slots, rw)
--RELEASE--
end

local beyond = #ARGV[6] + 2 -- where the name begins in a lock's key
local function queueOf(i) return queues .. string.sub(KEYS[i + 1], beyond) end
local function fenceOf(i) return fences .. ARGV[i + 15] end

local answer = {0, now, 0, '', '0', '', 0}
local function obstacle(i, code, left, text)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = i, code, left, text
end

-- look reads all keys, before anything is written: one of another kind fails the step as a whole.
local values, ours, others, lists = {}, 0, 0, ''
local function look()
  for i = 1, names do
    local value = redis.call('GETEX', KEYS[i + 1]) -- a GET that tracks nothing
    values[i] = value
    if value and string.sub(value, 1, #owner) == owner then
      ours = ours + 1
      lists = lists .. (string.match(value, ';.*') or '')
    elseif value then
      others = others + 1
    end
  end
end
local function foreign(i) return values[i] and string.sub(values[i], 1, #owner) ~= owner end

-- before returns the first living waiter of a line if it is before us. It drops the dead, and takes us out if we are next.
local stood = false
local function before(queue)
  local ticket = tonumber(string.match(claim, '#(%d+)') or 0)
  local h = redis.call('ZPOPMIN', queue)
  while h[1] do
    if h[1] == me then
      stood = true
      return nil
    end
    if redis.call('SETRANGE', wakes .. h[1], 0, '') > 0 then
      stand(queue, h[1], h[2])
      local theirs = tonumber(h[2])
      if ticket ~= 0 and (theirs > ticket or theirs == ticket and h[1] >= me) then return nil end
      return h
    end
    h = redis.call('ZPOPMIN', queue)
  end
  return nil
end

local function acquire()
  if now > tonumber(notAfter) then return -3 end
  if now < free then return -1, math.ceil((free - now) / 1000) end
  --IDENTITY--
  look()
  local code, first = -5, true
  for i = 1, names do
    local key = KEYS[i + 1]
    if foreign(i) then
      local left = redis.call('PTTL', key)
      local most = math.max(longest, tonumber(string.match(values[i], '^[%w~#]*!(%d+)') or 0))
      if left < 0 or left > most then -- as in acquire.lua
        left = most
        redis.call('PEXPIRE', key, left)
      end
      obstacle(i, 0, left, values[i])
      read(key)
      code = 0
    elseif not values[i] then
      local h = before(queueOf(i))
      if h then
        obstacle(i, -5, 0, h[1] .. ';' .. h[2])
        first = false
      end
    elseif me ~= '' then
      redis.call('ZREM', queueOf(i), me)
    end
  end
  if #answer > 7 then
    if me ~= '' then
      for i = 1, names do
        if foreign(i) and before(queueOf(i)) then first = false end
        stand(queueOf(i), me, string.match(claim, '#(%d+)') or '0')
      end
      local wake = KEYS[names + 2]
      redis.call('SET', wake, '0', 'PX', wakeMillis)
      read(wake)
    end
    return code, 0, '', me ~= '' and first
  end

  -- One token above the counters of all names. Two may share one, so all are read before any is written.
  local number, highest, last = tonumber(token), now + bound, 0
  if number > highest or number < floor then number = math.max(math.min(number, highest), floor) end
  for i = 1, names do last = math.max(last, redis.call('INCRBY', fenceOf(i), 0)) end
  if ours == names then -- asked again
    number = last
  elseif last >= number then
    number = last + 1
  end
  if number >= 9007199253692416 then -- as in acquire.lua
    return redis.error_reply('ERR redlock: fencing token of ' .. fenceOf(1) .. ' or another is exhausted')
  end
  for i = 1, names do redis.call('SET', fenceOf(i), string.format('%.0f', number)) end
  for i = 1, names do
    local key = KEYS[i + 1]
    if values[i] then prolong(key, lease) else redis.call('SET', key, claim, 'PX', lease) end
    read(key)
  end
  if stood then redis.call('DEL', wakes .. me) end
  return 1, number, lists
end

local function extend()
  if now > tonumber(notAfter) then return -3 end
  look()
  for i = 1, names do
    read(KEYS[i + 1])
    if foreign(i) then obstacle(i, 0, redis.call('PTTL', KEYS[i + 1]), values[i]) end
  end
  if others > 0 then return 0 end
  if ours < names then
    if how ~= '1' then return -4 end
    if not same then return -2 end
    if now < free then return -1, math.ceil((free - now) / 1000) end
    --IDENTITY--
  end
  for i = 1, names do
    local key = KEYS[i + 1]
    if values[i] then prolong(key, lease) else redis.call('SET', key, claim, 'PX', lease) end
    if redis.call('INCRBY', fenceOf(i), 0) < tonumber(token) then redis.call('SET', fenceOf(i), token) end
  end
  return ours < names and 2 or 1, 0, lists
end

local function releaseAll()
  local all, woken, failed = 1, {}, nil
  for i = 1, names do
    local done, code, woke = pcall(release, KEYS[i + 1], claim, queueOf(i), me, token, how, notAfter, lease)
    if not done then
      failed = failed or code
    elseif code == -3 then
      return -3
    else
      if code == 0 then all = 0 end
      if woke ~= '' then woken[#woken + 1] = woke end
    end
  end
  if failed then return {err = failed} end
  return all, 0, table.concat(woken, ',')
end

local code, number, text, first
if what == 'acquire all' then
  code, number, text, first = acquire()
elseif what == 'extend all' then
  code, number, text = extend()
  answer[6] = differs
else
  code, number, text = releaseAll()
end
redis.call('EXISTS', unpack(tracked))
if type(code) == 'table' then return code end
answer[1], answer[3], answer[4] = code, number or 0, text or ''
if first then answer[5] = '1' end
if code < 1 then answer[7] = ours end
return answer
