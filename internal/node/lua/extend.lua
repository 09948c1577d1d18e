-- extend renews a lease, stores the fencing token where it reaches, and wins a lost vote back where allowed.
-- It is also the second round of fencing: it acknowledges a token only where the owner's vote stands.
--
-- key lock  claim owner[#ticket]  lease ms  token to be stored  notAfter µs of node time, a number  fence bucket
-- mayWin '1' where an absent key may be won back, else '0'; behind it the owner that ours is to take the place of, if any
-- slots of a semaphore's slot: how many the semaphore has, which the node keeps in mind for as long as anybody holds one
-- rw 'r' for a reader, 'w' for a writer
-- Returns 1, 0, displaced list  renewed; '' where the value is the claim, else all that stands behind the owner
--         2                     won back
--         0, ms left, value     somebody else holds it
--         -4                    absent
--         -1, ms left  quarantined   -2  marker differs   -3  arrived too late
local function extend(key, claim, lease, token, notAfter, fence, mayWin, slots, rw)
  if now > notAfter then return -3 end

  local value = redis.call('GETEX', key) -- a GET that tracks nothing: what is read last is tracked
  if value then
    local owner = value ~= claim and string.match(claim, '^%w+') -- the usual case asks no more
    if owner and string.sub(value, 1, #owner) ~= owner then
      local from = string.sub(mayWin, 2)
      if from == '' or string.sub(value, 1, #from) ~= from then
        read(key)
        return 0, redis.call('PTTL', key), value
      end
      --IDENTITY--
      redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), 1)) -- first, as below
      value = owner .. string.sub(value, #from + 1)
      redis.call('SET', key, value, 'KEEPTTL')
    end
    -- The lease first: with full memory and noeviction the first write decides, and PEXPIRE is let through.
    prolong(key, lease)
    if rw == 'r' then
      local rival = hinders(key, claim, rw)
      if rival then -- somebody has deleted the index: whoever came in meanwhile stays
        read(rival)
        return 0, redis.call('PTTL', rival), redis.call('GETEX', rival)
      end
      enlist(key, lease)
    end
    if redis.call('INCRBY', fence, 0) < tonumber(token) then redis.call('SET', fence, token) end
    if slots and redis.call('PEXPIRE', string.match(key, '^.*}'), longest) == 0 then redis.call('SET', string.match(key, '^.*}'), slots, 'PX', longest) end
    read(key)
    return 1, 0, owner and string.sub(value, #owner + 1) or ''
  end

  if string.sub(mayWin, 1, 1) ~= '1' then
    read(key)
    return -4
  end
  if stale() then return -2 end
  if now < free then return -1, math.ceil((free - now) / 1000) end
  --IDENTITY--
  local rival = rw and hinders(key, claim, rw)
  if rival then
    read(rival)
    return 0, redis.call('PTTL', rival), redis.call('GETEX', rival)
  end
  redis.call('SET', key, claim, 'PX', lease)
  if rw == 'r' then enlist(key, lease) end
  if redis.call('INCRBY', fence, 0) < tonumber(token) then redis.call('SET', fence, token) end
  if slots and redis.call('PEXPIRE', string.match(key, '^.*}'), longest) == 0 then redis.call('SET', string.match(key, '^.*}'), slots, 'PX', longest) end
  read(key)
  return 2
end
