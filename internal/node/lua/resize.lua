-- resize notes another number of slots of a semaphore, where it is the one that it was taken to be.
--
-- KEYS 1 the semaphore's size
-- ARGV 1 slots so far  2 slots from now on  3 for how long it is kept in mind by itself, ms: the longest lease
-- Answer slots from now on, or what else it is
local size = redis.call('GET', KEYS[1])
if size and size ~= ARGV[1] and size ~= ARGV[2] then return tonumber(size) or 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return tonumber(ARGV[2])
