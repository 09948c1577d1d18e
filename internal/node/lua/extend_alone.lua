-- One extend.
--
-- KEYS 1 lock  2 marker
-- ARGV 1 owner[#ticket]  2 lease ms  3 fencing token  4 not after, µs of node time  5 fence bucket
--      6 marker as the client last read it  7 quarantined until µs  8 mayWin  9 slots, of a semaphore's slot, or 'r', 'w' for a reader, a writer  10 longest lease ms
-- Answer {code, now µs, and what else extend returns, and the marker if it is another: a renewal is done all the same}
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local free, longest = tonumber(ARGV[7]), ARGV[10]
local function read(key) redis.call('GET', key) end
local marker = redis.pcall('GETEX', KEYS[2])
if type(marker) ~= 'string' then marker = '' end
local function stale() return marker == '' or marker ~= ARGV[6] end -- where nobody has been told of one, there is none to go by
--PROLONG--
local slots, rw = ARGV[9], nil
local reading, longer, enlist, hinders, callIn, stand
if slots == 'r' or slots == 'w' then
  rw, slots = slots, nil
  --RW--
end
--EXTEND--
local code, number, text = extend(KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[8], slots, rw)
if stale() then return {code, now, number or 0, text or '', marker} end
return {code, now, number, text}
