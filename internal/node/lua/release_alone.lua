-- One release.
--
-- KEYS 1 lock  2 the waiter's wake key, if there is one
-- ARGV 1 owner[#ticket]  2 queue  3 wake key prefix; then, where it is any other than the plain end of a guard, 4 ended
--      5 not after, µs of node time, '0' for any time  6 waiter, '' for none  7 its ticket, '' if it leaves the line  8 wake key ms
--      9 how long to keep it from others, ms  10 slots, of a semaphore's slot, or 'r', 'w' for a reader, a writer
-- Answer {code, woken}
local wakes, wakeMillis = ARGV[3], ARGV[8]
local function read(key) redis.call('GET', key) end
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
local slots, rw = ARGV[10], nil
local reading, longer, enlist, hinders, callIn, stand, vacant
local waiting = redis.pcall('SETRANGE', wakes, 0, '') ~= 0 -- whether anybody stands in any line, as in lua/batch.lua: to look at the one line is two commands
if slots == 'r' or slots == 'w' then
  rw, slots, waiting = slots, nil, true -- the index of readers is looked at in any case
  --LINE--
  --RW--
end
local key, claim, queue, me, ticket = KEYS[1], ARGV[1], ARGV[2], ARGV[6] or '', ARGV[7] or ''
local ended, notAfter, keep = ARGV[4] or '1', ARGV[5] or '0', ARGV[9] or '0'
--RELEASE--
