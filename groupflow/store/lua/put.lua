#!lua
-- put: some of the list that the plain tasks of a pool are to be. What isn't known is added; what waits gets its
-- priority, in place; what is handed out is left alone. All of it bears the number of the list, so that
-- `prune` finds what is not in it. Without tasks it gives such a number, higher than all before.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 pool · 2 the list's number, '' to be given one · then five a task: id · priority (µs) · envelope
--          and body · its type, tenant, rule and pool (JSON) · scope
-- returns  { the list's number, one word a task: added, kept, assigned (somebody holds it), over (it was done
--          within the dedup window), dead (it is a dead letter), or foreign (another task has that id) }
local refusal = other_layout()
if refusal then return refusal end
local now, pool = clock(), ARGV[1]
note_first_epoch(now)
local arrival = math.max(now, (tonumber(call('HGET', K.count, 'arrival') or 0)) + 1)
local number = ARGV[2]
if number == '' then
  number = digits(arrival)
  call('HSET', K.count, 'arrival', number)
  arrival = arrival + 1
end
local words, added = {}, 0

-- Whether an id's task was done. One that ended otherwise may come again.
local function is_over(id)
  for _, key in ipairs({ K.history_new, K.history_old }) do
    local line = call('HGET', key, id)
    if line and string.find(line, '["done"', 17, true) then return true end
    if line then call('HDEL', key, id) end
  end
  return false
end

local function add(i)
  local id, element = ARGV[i], digits(arrival) .. '+' .. ARGV[i]
  local facts = cjson.decode(ARGV[i + 3])
  call('HSET', K.tasks, id, ARGV[i + 2])
  call('HSET', K.life .. id, 'arrival', digits(arrival), 'group', '', 'priority', ARGV[i + 1], 'type', facts[1],
    'tenant', facts[2], 'scope', ARGV[i + 4], 'pool', pool, 'list', number)
  call('ZADD', index_of('ordered', pool), digits(arrival - ARGV[i + 1]), element)
  arrival, added = arrival + 1, added + 1
  return 'added'
end

-- Gives what waits its priority. What an earlier attempt has put in line keeps its turn.
local function keep(id, life, priority)
  local element = life[2] .. '+' .. id
  call('HSET', K.life .. id, 'list', number)
  if life[3] ~= priority and not life[4] then
    local order = digits(life[2] - priority)
    for _, kind in ipairs({ 'ordered', 'suspect_plain' }) do
      call('ZADD', index_of(kind, pool), 'XX', order, element)
    end
  end
  local waits = call('ZSCORE', index_of('ordered', pool), element)
    or call('ZSCORE', index_of('suspect_plain', pool), element) or call('ZSCORE', K.delayed, element)
  if waits then call('HSET', K.life .. id, 'priority', priority) end
  return waits and 'kept' or 'assigned'
end

local function word_of(i)
  local id = ARGV[i]
  if call('ZSCORE', K.dead, id) then return 'dead' end
  if call('HEXISTS', K.tasks, id) == 0 then return is_over(id) and 'over' or add(i) end
  local life = call('HMGET', K.life .. id, 'pool', 'arrival', 'priority', 'order', 'group')
  if life[1] ~= pool then return 'foreign' end
  if (life[5] or '') ~= '' then return 'kept' end
  return keep(id, life, ARGV[i + 1])
end

for i = 3, #ARGV, 5 do words[#words + 1] = word_of(i) end
if added > 0 then
  call('HSET', K.count, 'arrival', digits(arrival - 1))
  call('HINCRBY', K.count, 'taken', added)
  call('HINCRBY', K.count, 'queued_plain', added)
  call('HSETNX', K.pools, pool, digits(now))
  tell('pool')
end
return { number, unpack(words) }
