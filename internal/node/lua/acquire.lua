-- acquire asks this node to lease a lock to one owner; one who waits is put in line if it is not to be had.
--
-- key lock  wake the waiter's wake key, if it waits  claim owner[#ticket of a waiter or a try][…]  lease ms, or longer  proposed fencing token
-- notAfter µs of node time, a number  fence bucket  queue, nil where nobody stands in any line and we do not either  me the waiter, '' for one who does not wait
-- takeover '1' to take over; '?' and for how many ms, to ask who holds it to let go
-- slots of a semaphore's slot: how many the semaphore has  rw 'r' for a reader, 'w' for a writer
-- Returns 1, token, displaced list, '1' if it was ours already  granted; the last two may be left out
--         0, ms left, value, '1' if first                       refused: somebody holds it
--         -5, 0, who;ticket                                     refused: free, and somebody is before us in line
--           both, of a slot: our place in line, '0' if it is behind as many as there are slots; ms left of each slot, 0 if it is free
--         -6, slots                                             refused: the semaphore has another number of slots here
--         -1, ms left  quarantined   -2  marker differs   -3  arrived too late
--         -100                                                  granted, with the token that was proposed, and nothing else to say
--
-- Fence bucket, queue and the wake keys of others are undeclared, and touched by write commands only: a key that is
-- declared (7.0) or read (7.2+) in here is tracked, and each grant or new waiter would push to every waiter. Whose wake
-- key is touched is only known in here anyway. For the same reason a grant reads once, and that last of all: what a
-- script reads and then writes is tracked and untracked for nothing.
if now > notAfter then return answer(-3) end

if now < free then return answer(-1, math.ceil((free - now) / 1000)) end
--IDENTITY--

-- The lock first: with full memory it is the first write that is refused. And free with nobody in line is the usual case.
local rival = rw and hinders(key, claim, rw)
local new = not rival and redis.call('SET', key, claim, 'NX', 'PX', lease)
if slots then
  local size = redis.call('GETEX', string.match(key, '^.*}'))
  if size and size ~= slots then
    if new then redis.call('DEL', key) end
    return answer(-6, tonumber(size))
  end
end
local list, head = '', new and takeover ~= '1' and waiting and redis.call('ZPOPMIN', queue) -- takeovers ignore the line
if not new or head and head[1] then
  if new then redis.call('DEL', key) end

  --CONTENDED--

  if stale() then
    if head then stand(queue, head[1], head[2]) end
    return answer(-2)
  end

  -- ahead returns how many living waiters are before us, up to so many, and the first of them, and whether we stood in line. To a
  -- reader other readers do not count. It takes us out, and drops the dead, however many: their wake key ran out. SETRANGE with nothing to write tells the length
  -- of a value as a write command. Order is by ticket, then by id, as in the queue.
  local function ahead(most, h)
    local ticket = tonumber(string.match(claim, '#(%d+)') or 0)
    local n, living, before = 0, {}, nil
    h = h or redis.call('ZPOPMIN', queue)
    while h[1] and h[1] ~= me do
      if redis.call('SETRANGE', wakes .. h[1], 0, '') > 0 then
        living[#living + 1] = h
        local theirs = tonumber(h[2])
        if ticket ~= 0 and (theirs > ticket or theirs == ticket and h[1] >= me) then break end
        if rw ~= 'r' or string.sub(h[1], 1, 1) ~= 'r' then
          n = n + 1
          before = before or h
        end
        if n == most then break end
      end
      h = redis.call('ZPOPMIN', queue)
    end
    for _, w in ipairs(living) do stand(queue, w[1], w[2]) end
    return n, before, h[1] == me
  end

  -- lineUp puts us in line, says where we stand in it, and reads our wake key last of all, which tracks it.
  local function lineUp()
    if me == '' then return '0' end
    local most = tonumber(slots or 1)
    local n = ahead(most)
    stand(queue, me, string.match(claim, '#(%d+)') or '0')
    redis.call('SET', wake, '0', 'PX', wakeMillis)
    read(wake)
    return n < most and tostring(n + 1) or '0'
  end

  -- lefts tells how long each slot is still taken. What it reads is tracked from 7.2 on: whoever waits is pushed what becomes
  -- of the slots, and goes by it only where it has asked for that slot.
  local function lefts()
    local each, base = {}, string.match(key, '^.*}')
    for i = 1, tonumber(slots) do
      local left = redis.call('PTTL', base .. i)
      if left == -2 then
        left = 0
      elseif left < 1 then
        left = left == 0 and 1 or longest
      end
      each[i] = string.format('%.0f', left)
    end
    return table.concat(each, ',')
  end

  -- Nobody overtakes who began to wait before: of a semaphore as many may as have a free slot each.
  if head then
    local open = 1
    if slots then -- one that the semaphore does not have any more is for nobody in line
      open = tonumber(string.match(key, '%d+$')) > tonumber(slots) and 0 or vacant(key, slots)
    end
    local n, first, stood = ahead(open, head)
    if open > 0 and n == open then
      local place = lineUp()
      if slots then return answer(-5, 0, first[1] .. ';' .. first[2], place, lefts()) end
      return answer(-5, 0, first[1] .. ';' .. first[2])
    end
    if stood then redis.call('DEL', wake) end
    redis.call('SET', key, claim, 'PX', lease)
  else
    key = rival or key
    local value = redis.call('GETEX', key)
    local owner = string.match(claim, '^%w+')
    if string.sub(value, 1, #owner) == owner then
      -- Asked again: every OK means "renewed just now", or the client would count a lease from a later send.
      prolong(key, lease)
      if rw == 'r' then enlist(key, lease) end
      local token = redis.call('INCRBY', fence, 0)
      read(key)
      return answer(1, token, string.sub(value, #owner + 1), '1')
    end

    local left = redis.call('PTTL', key)
    local most = math.max(longest, tonumber(string.match(value, '^[%w~#]*!(%d+)') or 0))
    if left < 0 or left > most then -- PERSIST, or the clock went back: no live claim exceeds the longest lease, no key what it says
      left = most
      redis.call('PEXPIRE', key, left)
    end
    if takeover ~= '1' then
      -- The holder is asked by a mark in its own value, once, which pushes it. Those of others that are over are dropped.
      if takeover ~= '0' and string.sub(value, 1, 1) ~= '~' and not string.find(value, ';?' .. me .. '@', 1, true) then
        local asked = string.gsub(value, ';%?%w+@(%d+)', function(til) if tonumber(til) < now then return '' end end)
        redis.call('SET', key, asked .. ';?' .. me .. '@' .. string.format('%.0f', now + tonumber(string.sub(takeover, 2)) * 1000), 'KEEPTTL')
      end
      read(key)
      local place = lineUp()
      if slots then return answer(0, left, value, place, lefts()) end
      return answer(0, left, value, place)
    end

    -- Taking over: carry every owner displaced here whose claim may still be counted by somebody. A lease on a node only
    -- ever grows; what a key lasts longer than any is no claim, but only kept.
    left = math.min(left, longest)
    for o, til in string.gmatch(value, ';(%w+)@(%d+)') do
      if o ~= owner and tonumber(til) > now then list = list .. ';' .. o .. '@' .. til end
    end
    if string.sub(value, 1, 1) ~= '~' then
      list = list .. ';' .. (string.match(value, '^%w+') or '0') .. '@' .. string.format('%.0f', now + left * 1000)
    end
    redis.call('SET', key, claim .. list, 'PX', math.max(tonumber(lease), left))
  end
end

-- The lock is ours: make and store the fencing token. Whoever lost its memory, or runs on another memory than the client saw, has
-- no vote to give: that is looked at last, and then the lock was never set.
local token, text = tonumber(proposed), proposed
if token > highest or token < floor then
  token = math.max(math.min(token, highest), floor)
  text = string.format('%.0f', token)
end
if rw then -- more than the other side was given; its counter is the other one of a pair
  local buckets, n = string.match(fence, '^(.-)(%d+)$')
  local other = redis.call('INCRBY', buckets .. (n % 2 == 0 and n + 1 or n - 1), 0)
  if other >= token then
    token = other + 1
    text = string.format('%.0f', token)
  end
end
local last = redis.call('SET', fence, text, 'GET')
if last and tonumber(last) >= token then
  if rw == 'r' then -- readers may have the same
    redis.call('SET', fence, last)
  else
    token = last + 1
    text = string.format('%.0f', token)
    redis.call('SET', fence, text)
  end
end
if token >= 9007199253692416 then -- 2^53 - 2^20: beyond 2^53 a Lua number no longer counts by ones
  redis.call('DEL', key)
  return redis.error_reply('ERR redlock: fencing token of ' .. fence .. ' is exhausted')
end
--GENUINE--
if not genuine then
  redis.call('DEL', key)
  return answer(-2)
end
if slots then redis.call('SET', string.match(key, '^.*}'), slots, 'PX', longest) end
if rw == 'r' then enlist(key, lease) end
if list ~= '' then return answer(1, text, list, '0') end
if text ~= proposed then return answer(1, text) end
return answer(-100)
