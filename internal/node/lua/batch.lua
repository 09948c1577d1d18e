-- A batch of steps, each of which is done, or comes to its error, by itself: in the order in which they were queued.
-- Time, process, marker and memory are looked at once for all of them.
--
-- KEYS 1 marker, then of each step the keys in brackets, which are read last and so are tracked
-- ARGV 1 marker as the client last read it  2 quarantined until µs  3 fence floor µs  4 longest lease ms  5 clock bound µs
--      6 key prefix  7 wake key prefix  8 wake key ms  9 lease ms and 10 not after µs of each step that has none of its own,
--      then one step after the other:
--      'acquire'|'take' [lock]  'wait' [lock, wake key]  owner[#ticket], proposed fencing token, fence bucket
--      'ask' [lock, wake key]                            the same, takeover as acquire takes it
--      'extend'|'regain' [lock]                          as acquire; regain may win an absent key back
--      'succeed' [lock]                                  as acquire, mayWin as extend takes it
--      'end'                                             owner[#ticket], lock
--      'release'|'stay' [wake key]                       owner[#ticket], lock, ended as release takes it, not after µs or '0', waiter or ''
--      'keep'                                            the same, for how long to keep the lock from others, ms
--      before any of them 'own', lease ms and not after µs of its own; then 'slot', how many slots its semaphore has, if it is one of
--      a semaphore's; 'rw', 'r' or 'w' of a reader or a writer
-- Answer {now µs, then of each step an error, or how many values follow and what acquire, extend, release return; a renewal
--      also the marker if it is another. -100 where they return what they usually do: 1, and the token that was proposed, or 0 and '',
--      or that nobody was woken}
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local free, floor, longest, highest = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), now + ARGV[5]
local queues, wakes, wakeMillis = ARGV[6] .. ':queue:', ARGV[7], ARGV[8]
local usualLease, usualEnd = ARGV[9], tonumber(ARGV[10])

-- Before the first write, behind which a full memory refuses nothing in a script: to acquire needs some. The length of the
-- wake key of nobody, 0 if it is not there, says whether anybody stands in any line.
local full = redis.pcall('SETRANGE', wakes, 0, '')
local waiting = full ~= 0
if type(full) ~= 'table' or not string.find(full.err, 'OOM', 1, true) then full = nil end

local marker = redis.pcall('GETEX', KEYS[1])
if type(marker) == 'table' and not string.find(marker.err, 'WRONGTYPE', 1, true) then return marker end
local same = marker == ARGV[1]
local differs -- what it is then: renewals are done all the same, and answered with it
if not same then differs = type(marker) == 'string' and marker or '' end
--PROCESS--

-- What is read last is tracked. One read does for all: before 7.2 each tracks every key that is declared.
local reads, tracked = 1, {KEYS[1]}
local function read(key)
  reads = reads + 1
  tracked[reads] = key
end
local function stale() return not same end
local function clock() return now end
--PROLONG--
local reading, longer, enlist, hinders, callIn, stand, vacant
--STAND--
--VACANT--
local function acquire(key, wake, claim, lease, proposed, notAfter, fence, queue, me, takeover, slots, rw)
--ACQUIRE--
end
--EXTEND--
local function release(key, claim, queue, me, ticket, ended, notAfter, keep, slots, rw)
--RELEASE--
end

local beyond = #ARGV[6] + 2 -- where the name begins in a lock's key
local function queueOf(key, hasOwn)
  if hasOwn then return string.match(key, '^.*}') .. 'queue' end
  return queues .. string.sub(key, beyond)
end

local answers, n = {now}, 1
local k, a, last = 2, 11, #ARGV
while a <= last do
  local lease, notAfter, slots, rw = usualLease, usualEnd, nil, nil
  if ARGV[a] == 'own' then
    lease, notAfter = ARGV[a + 1], tonumber(ARGV[a + 2])
    a = a + 3
  end
  if ARGV[a] == 'slot' then
    slots = ARGV[a + 1]
    a = a + 2
  elseif ARGV[a] == 'rw' then
    rw = ARGV[a + 1]
    a = a + 2
    if not reading then
      --RW--
    end
  end
  local what, claim = ARGV[a], ARGV[a + 1]
  local done, code, number, text, first, lefts = true
  if what == 'end' then
    done, code, number = pcall(release, ARGV[a + 2], claim, waiting and queueOf(ARGV[a + 2], slots or rw), '', '', '1', '0', '0', slots, rw)
    a = a + 3
  elseif what == 'extend' or what == 'regain' then
    done, code, number, text = pcall(extend, KEYS[k], claim, lease, ARGV[a + 2], notAfter, ARGV[a + 3], what == 'regain' and '1' or '0', slots, rw)
    k, a = k + 1, a + 4
  elseif what == 'succeed' then
    done, code, number, text = pcall(extend, KEYS[k], claim, lease, ARGV[a + 2], notAfter, ARGV[a + 3], ARGV[a + 4], slots, rw)
    k, a = k + 1, a + 5
  elseif what == 'release' or what == 'stay' or what == 'keep' then
    local ticket, keep = '', '0'
    if what == 'stay' then
      ticket, k = string.match(claim, '#(%d+)'), k + 1
    elseif what == 'keep' then
      keep = ARGV[a + 6]
    end
    done, code, number = pcall(release, ARGV[a + 2], claim, queueOf(ARGV[a + 2], slots or rw), ARGV[a + 5], ticket, ARGV[a + 3], ARGV[a + 4], keep, slots, rw)
    a = a + (what == 'keep' and 7 or 6)
  else
    local key, wake, me, takeover, size = KEYS[k], nil, '', what == 'take' and '1' or '0', 4
    if what == 'ask' then
      takeover, size = ARGV[a + 4], 5
    end
    if what == 'wait' or what == 'ask' then
      k = k + 1
      wake = KEYS[k]
      me = string.sub(wake, #wakes + 1)
    end
    if full then
      code = full
    else
      done, code, number, text, first, lefts = pcall(acquire, key, wake, claim, lease, ARGV[a + 2], notAfter, ARGV[a + 3], (waiting or wake) and queueOf(key, slots or rw), me, takeover, slots, rw)
    end
    k, a = k + 1, a + size
  end
  if not done then code = {err = code} end
  if differs and (what == 'extend' or what == 'regain' or what == 'succeed') then number, text, first = number or 0, text or '', differs end
  if type(code) == 'table' then
    n = n + 1
    answers[n] = code
  elseif code == -100 or code == 1 and not first and (number == '' or number == 0 and text == '') then
    n = n + 1
    answers[n] = -100
  elseif lefts then
    answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4], answers[n + 5], answers[n + 6] = 5, code, number, text, first, lefts
    n = n + 6
  elseif first then
    answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4], answers[n + 5] = 4, code, number, text, first
    n = n + 5
  elseif text then
    answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = 3, code, number, text
    n = n + 4
  elseif number then
    answers[n + 1], answers[n + 2], answers[n + 3] = 2, code, number
    n = n + 3
  else
    answers[n + 1], answers[n + 2] = 1, code
    n = n + 2
  end
end
redis.call('EXISTS', unpack(tracked))
return answers
