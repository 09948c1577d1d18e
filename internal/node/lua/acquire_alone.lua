-- One acquire.
--
-- KEYS 1 lock  2 marker  3 the waiter's wake key, if it waits
-- ARGV 1 owner[#ticket]  2 lease ms  3 proposed fencing token  4 not after, µs of node time  5 fence bucket
--      6 marker as the client last read it  7 quarantined until µs  8 fence floor µs  9 longest lease ms  10 clock bound µs
--      11 queue  12 wake key prefix; then, where it is any other than a plain question, 13 takeover, as acquire takes it
--      14 waiter, '' for one who does not wait  15 wake key ms  16 slots, of a semaphore's slot; or 'r', 'w' for a reader, a writer
-- Answer {code, now µs, and what else acquire returns}
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local free, floor, longest, highest = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), now + ARGV[10]
local wakes, wakeMillis = ARGV[12], ARGV[15]
local slots, rw = ARGV[16], nil
local reading, longer, enlist, hinders, callIn, stand, vacant
local waiting = true -- to ask whether anybody waits anywhere is no cheaper than to look at the one line
if slots == 'r' or slots == 'w' then
  rw, slots = slots, nil
  --RW--
end
local key, wake, claim, lease, proposed = KEYS[1], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
local notAfter, fence, queue, me, takeover = tonumber(ARGV[4]), ARGV[5], ARGV[11], ARGV[14] or '', ARGV[13] or '0'
--ACQUIRE--
