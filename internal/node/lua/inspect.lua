-- inspect says who holds a lock on this node, and who waits for it there.
--
-- KEYS 1 lock  2 queue
-- ARGV 1 fence bucket  2 wake key prefix
-- Answer {value or '', ms left, last token of the bucket, waiter, waiter, …} living waiters, first in line first
local answer = {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('GET', ARGV[1]) or '0'}
for _, waiter in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if redis.call('EXISTS', ARGV[2] .. waiter) == 1 then answer[#answer + 1] = waiter end
end
return answer
