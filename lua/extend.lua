-- extend renews a lease, stores the fencing token where it reaches, and wins a lost vote back where allowed.
-- It is also the second round of fencing: it acknowledges a token only where the owner's vote stands.
--
-- KEYS 1 lock  2 marker
-- ARGV 1 owner[#ticket]  2 lease ms  3 fencing token  4 not after, µs of node time  5 fence bucket
--      6 marker as the client last read it  7 quarantined until µs  8 '1' where an absent key may be won back
-- Answer {1, now µs, 0, displaced list} renewed
--        {2, now µs} won back
--        {0, now µs, ms left, value} somebody else holds it
--        {-4, now µs} absent
--        {-1, now µs, ms left} quarantined  {-2, now µs} marker differs  {-3, now µs} arrived too late
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
if now > tonumber(ARGV[4]) then return {-3, now} end

local value = redis.call('GET', KEYS[1])
if value then
  local owner = string.match(ARGV[1], '^%w+')
  if string.sub(value, 1, #owner) ~= owner then
    return {0, now, redis.call('PTTL', KEYS[1]), value}
  end
  -- The lease first: with full memory and noeviction the first write decides, and PEXPIRE is let through.
  redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])))
  if redis.call('INCRBY', ARGV[5], 0) < tonumber(ARGV[3]) then redis.call('SET', ARGV[5], ARGV[3]) end
  redis.call('GET', KEYS[1])
  return {1, now, 0, string.sub(value, #owner + 1)}
end

if ARGV[8] ~= '1' then return {-4, now} end
if redis.call('GET', KEYS[2]) ~= ARGV[6] then return {-2, now} end
local free = tonumber(ARGV[7])
if now < free then return {-1, now, math.ceil((free - now) / 1000)} end
--IDENTITY--
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if redis.call('INCRBY', ARGV[5], 0) < tonumber(ARGV[3]) then redis.call('SET', ARGV[5], ARGV[3]) end
redis.call('GET', KEYS[1])
return {2, now}
