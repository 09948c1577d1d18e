-- One release.
--
-- KEYS 1 lock  2 the waiter's wake key, if there is one
-- ARGV 1 owner[#ticket]  2 wake key prefix  3 wake key ms  4 waiter, '' for none  5 its ticket, '' if it leaves the line
--      6 ended  7 not after, µs of node time, '0' for any time  8 queue  9 how long to keep it from others, ms  10 slots, of a semaphore's slot, or 'r', 'w' for a reader, a writer
-- Answer {code, woken}
local wakes, wakeMillis = ARGV[2], ARGV[3]
local function read(key) redis.call('GET', key) end
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local slots, rw = ARGV[10], nil
local reading, longer, enlist, hinders, callIn, stand, vacate
local waiting = true -- to ask whether anybody waits anywhere is no cheaper than to look at the one line
--STAND--
--VACANT--
if slots == 'r' or slots == 'w' then
  rw, slots = slots, nil
  --RW--
end
--RELEASE--
return {release(KEYS[1], ARGV[1], ARGV[8], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[9] or '0', slots, rw)}
