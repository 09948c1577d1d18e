-- stand puts a waiter in line. ZPOPMIN of the only one took the key and with it its end, so that is set each time: twice
-- what the wake key of any waiter may last. The wake key of nobody lasts as long as any line, and names it if it is the only
-- one: a batch need not look at lines where there is none. Who finds that nobody stands in the line that it names deletes it.
stand = function(queue, who, place)
  redis.call('ZADD', queue, place, who)
  if type(redis.pcall('PEXPIRE', queue, 3600)) == 'table' then -- refused: nothing would ever end the line
    redis.call('DEL', queue)
    redis.call('PEXPIRE', queue, 3600)
  end
  local line = redis.pcall('GETEX', wakes)
  redis.call('SET', wakes, (not line or line == queue) and queue or '*', 'PX', 3600)
  waiting = true
end
