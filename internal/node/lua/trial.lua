-- trial runs what the scripts run in forms that change nothing, so that what a server refuses is known before a lock
-- meets it. A refused command raises no error here: all of them are told.
--
-- ARGV 1 a lock that nobody can have: its name is empty  2 marker  3 fence bucket  4 queue of that lock  5 a wake key of
--      nobody; none is declared, so that each command is told of its own keys
-- Answer {what a write that needs memory is told, what one that needs none is told, command, what it is told, ...}
--        '' is no error
local lock, marker, fence, queue, wake = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local answer = {'', ''}
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return reply.err end
  return ''
end
local function note(command, told)
  if told ~= '' then
    answer[#answer + 1] = command
    answer[#answer + 1] = told
  end
  return told
end

-- Before the first write, after which a full memory refuses nothing in a script. The second has to come before anything
-- else is written, too: a failed save and its like refuse nothing after that.
answer[1] = note('SETRANGE ' .. fence, try('SETRANGE', fence, 0, ''))
answer[2] = note('PEXPIRE ' .. lock, try('PEXPIRE', lock, 1))

note('SET ' .. wake, try('SET', wake, '', 'XX', 'KEEPTTL')) -- not of the lock: who watches a node would take it for a grant
note('GET ' .. lock, try('GET', lock))
note('GETEX ' .. lock, try('GETEX', lock))
note('PTTL ' .. lock, try('PTTL', lock))
note('DEL ' .. lock, try('DEL', lock))
note('MGET ' .. lock .. ' ' .. marker, try('MGET', lock, marker))
note('EXISTS ' .. lock .. ' ' .. marker, try('EXISTS', lock, marker))
note('INCRBY ' .. fence, try('INCRBY', fence, 'x')) -- not a number, and so nothing is written; that is told, too
note('ZADD ' .. queue, try('ZADD', queue, 'x', 'x'))
note('ZPOPMIN ' .. queue, try('ZPOPMIN', queue))
note('ZREM ' .. queue, try('ZREM', queue, 'x'))
note('SETRANGE ' .. wake, try('SETRANGE', wake, 0, ''))
note('GET ' .. wake, try('GET', wake))
note('DEL ' .. wake, try('DEL', wake))
note('TIME', try('TIME'))
note('INFO', try('INFO', 'server'))
return answer
