-- mark writes the node's marker, if it is still what the client read and this is still the process it read it from.
--
-- KEYS 1 marker
-- ARGV 1 marker as read, '' for none  2 run id  3 quarantine µs from now, or -1 to keep ARGV 4
--      4 quarantined until µs  5 fence floor µs, never lowered  6 fence floor, µs from now, or -1 for none  7 the rest
-- Answer {1, now µs, marker} written  {0, now µs, marker} somebody was first: read again
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local marker = redis.call('GET', KEYS[1]) or ''
if marker ~= ARGV[1] or not string.find(redis.call('INFO', 'server'), 'run_id:' .. ARGV[2], 1, true) then
  return {0, now, marker}
end
local til = tonumber(ARGV[4])
if tonumber(ARGV[3]) >= 0 then til = now + tonumber(ARGV[3]) end
local floor = tonumber(ARGV[5])
if tonumber(ARGV[6]) >= 0 and now + tonumber(ARGV[6]) > floor then floor = now + tonumber(ARGV[6]) end
marker = string.format('%s:%.0f:%.0f:%s', ARGV[2], til, floor, ARGV[7])
redis.call('SET', KEYS[1], marker)
redis.call('GET', KEYS[1]) -- last: tracks the marker
return {1, now, marker}
