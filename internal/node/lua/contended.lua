-- What a lone acquire needs beyond the usual case, and makes only there: each function costs a tenth of a µs.
local function read(key) redis.call('GET', key) end
local function stale() return redis.call('GETEX', KEYS[2]) ~= ARGV[6] end
--PROLONG--
--STAND--
--VACANT--
