-- prolong renews a lease: on a node it only ever grows.
local function prolong(key, lease)
  --GT--
  redis.call('PEXPIRE', key, math.max(tonumber(lease), redis.call('PTTL', key)))
end
