-- inspect_rw says who reads on this node.
--
-- KEYS 1 the writer's key, with which those of the readers begin  2 index of readers
-- ARGV 1 readers' fence bucket
-- Answer {reader, value, ms left, last token of the bucket, of the next reader the same, …} the value of one that is kept names no reader
local answer, token = {}, redis.call('GET', ARGV[1]) or '0'
for _, reader in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local value = reader ~= '' and redis.call('GET', KEYS[1] .. reader)
  if value then
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = reader, value, redis.call('PTTL', KEYS[1] .. reader), token
  end
end
return answer
