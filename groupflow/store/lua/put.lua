#!lua
-- put: some of the list that the plain tasks of a pool are to be. A task that isn't known is added; one that waits gets
-- its priority, in place; one that a puller holds is left alone. All of them bear the number of the list, unless they
-- bear a later one's or have come since, so that `prune` finds what is not in it. Without tasks it gives such a number,
-- higher than all before. Ids are known in their scope, as messages' are: where another scope has one, the task gets a
-- derived id (`ids.lua`).
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 pool · 2 for how long a dead letter keeps its id (µs): as long as it is there · 3 random text, for a
--          salt where there is none yet · 4 the list's number, '' to be given one · then five a task: id · priority
--          (µs) · envelope and body, or where that was laid (`keeping.lua`) · its type, tenant, rule and pool (JSON)
--          · scope
-- returns  { the list's number, one word a task: added, kept, assigned (a puller holds it), over (it was done
--          within the dedup window), dead (it is a dead letter), foreign (its scope's task of that id is none of
--          the plain ones of this pool), or { the id under which its envelope has to be laid } }
local refusal = other_layout()
if refusal then return refusal end
local pool = ARGV[1]
now, any_renamed = clock(), true -- each line looks there anyway
note_first_epoch(now)
local sequence = next_sequence(now)
local number = ARGV[4]
if number == '' then
  number = digits(sequence)
  call('HSET', K.count, 'sequence', number)
  sequence = sequence + 1
end
local words, added = {}, 0

-- Whether a task that has ended was done. One that ended otherwise may come again.
local function was_done(id)
  local line = call('HGET', K.history_new, id) or call('HGET', K.history_old, id)
  return string.find(line, '["done"', 17, true)
end

local function add(i)
  local id, wanted = keep(ARGV[i], ARGV[i + 4], ARGV[i + 2])
  if not id then return wanted and { wanted } or 'foreign' end -- the latter: an operator changed keys by hand
  local entry, facts = digits(sequence) .. '+' .. id, cjson.decode(ARGV[i + 3])
  call('HSET', K.task_state .. id, 'sequence', digits(sequence), 'group', '', 'priority', ARGV[i + 1], 'type', facts[1],
    'tenant', facts[2], 'scope', ARGV[i + 4], 'pool', pool, 'list', number)
  if not waits_in_line(entry, sequence - ARGV[i + 1], false, pool, now) then
    call('ZADD', index_of('ordered', pool), digits(sequence - ARGV[i + 1]), entry)
  end
  sequence, added = sequence + 1, added + 1
  return 'added'
end

-- Gives a waiting task its priority. A task that an earlier attempt has put in line keeps its turn.
local function reprioritise(id, task_state, priority)
  local entry = task_state[2] .. '+' .. id
  local place = is_limiting() and is_capping() and call('HGET', K.cap_tasks, entry)
  if number > (task_state[6] or task_state[2]) then call('HSET', K.task_state .. id, 'list', number) end
  if task_state[3] ~= priority and not task_state[4] then
    local order = digits(task_state[2] - priority)
    for _, kind in ipairs({ 'ordered', 'quarantined_plain' }) do
      call('ZADD', index_of(kind, pool), 'XX', order, entry)
    end
    if place then caps().reorder(entry, order, now) end
  end
  local waits = place or call('ZSCORE', index_of('ordered', pool), entry)
    or call('ZSCORE', index_of('quarantined_plain', pool), entry) or call('ZSCORE', K.delayed, entry)
  if waits then call('HSET', K.task_state .. id, 'priority', priority) end
  return waits and 'kept' or 'assigned'
end

-- What becomes of a line whose task is here, and no dead letter.
local function stay(id, priority)
  local task_state = call('HMGET', K.task_state .. id, 'pool', 'sequence', 'priority', 'order', 'group', 'list')
  if task_state[1] ~= pool then return 'foreign' end
  if (task_state[5] or '') ~= '' then return 'kept' end
  return reprioritise(id, task_state, priority)
end

local function word_of(i, laid_at)
  local names = names_of(ARGV[i], ARGV[i + 4], laid_at)
  local is_dead, is_over = false, false
  for _, id in ipairs(names) do
    if call('ZSCORE', K.dead, id) then
      is_dead = true
    elseif id ~= laid_at and call('HEXISTS', K.tasks, id) == 1 then
      return stay(id, ARGV[i + 1])
    else
      is_over = is_over or was_done(id)
    end
  end
  if is_dead then return 'dead' end
  if is_over then return 'over' end
  for _, id in ipairs(names) do call('HDEL', K.history_new, id) call('HDEL', K.history_old, id) end
  return add(i)
end

for i = 5, #ARGV, 5 do
  local bytes, at = laid(ARGV[i + 2])
  local laid_at = bytes and is_laid(at, bytes) and at
  local word = word_of(i, laid_at)
  if laid_at and word ~= 'added' then call('HDEL', K.tasks, laid_at) end
  words[#words + 1] = word
end
if added > 0 then
  call('HSET', K.count, 'sequence', digits(sequence - 1))
  call('HINCRBY', K.count, 'taken', added)
  call('HINCRBY', K.count, 'queued_plain', added)
  call('HSETNX', K.pools, pool, digits(now))
  tell('pool')
end
return { number, unpack(words) }
