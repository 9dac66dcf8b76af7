#!lua flags=allow-oom
-- drop_waiting: remove a task that waits, or is delayed, for good; its group goes on. Behind `cancel` it ends as
-- cancelled. A task whose task state has no `sequence` is known only by its place in the line: the script looks for it
-- from the newest end, so many places a call, and goes on behind the last entry that it has seen. So tasks that come,
-- are claimed or are dropped meanwhile can't hide it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 group ('' = plain) · 3 its line for the history, '' behind `cancel` · 4 'line', 'ordered'
--          (where a move to other partitions puts plain tasks), 'turns' of its tenant, or 'types'
--          5 the entry to go on behind there, '' to begin · 6 how many places to look at
-- returns  { 1 (dropped) or 0, as ARGV 4 and 5 to go on }, without the latter two at the end; { 0 }: it doesn't wait
local id, group, where, last, most = ARGV[1], ARGV[2], ARGV[4], ARGV[5], tonumber(ARGV[6])
if call('HEXISTS', K.tasks, id) == 0 or call('ZSCORE', K.dead, id) then return { 0 } end
if ARGV[3] == '' and not cancel_of(id) then return { 0 } end -- the server that had the request is gone
local line, now = line_of(group), clock()
local FOLLOWING = { line = 'ordered', ordered = 'turns', turns = 'types' }

-- How many are older in the line of a waiting task; nil where it isn't in there.
local function place_in_line(entry)
  local older = count_older(line, sequence_of(entry))
  return call('LINDEX', line, -older - 1) == entry and older or nil
end

local function leave(entry)
  if leave_index(entry, group, now) then return true end
  local place = not is_of_run(entry, end_of_run(group)) and place_in_line(entry)
  if not place then return false end
  leave_lane(line, { place })
  return true
end

-- The entries behind the last one seen; of indexes the first ones, if that is gone.
local function next_page()
  if where == 'line' then
    local from = count_seen(line, last ~= '' and sub(last, 1, 16) or '')
    return call('LRANGE', line, from, from + most - 1)
  end
  local queue = group == '' and where == 'ordered' and K.ordered
  if group == '' and not queue and is_limiting() then
    if where == 'turns' then queue = tenants().queue_of(id) else queue = is_capping() and caps().queue_of(id) end
  end
  local rank = last ~= '' and queue and call('ZRANK', queue, last)
  local from = rank and call('ZCARD', queue) - rank or 0
  return queue and call('ZRANGE', queue, from, from + most - 1, 'REV') or {}
end

local function look()
  local sequence = call('HGET', K.task_state .. id, 'sequence')
  if sequence then
    local entry = sequence .. '+' .. id
    local is_gone = leave(entry)
    if is_gone then leave_burst(entry) end
    return is_gone
  end
  local page = next_page()
  for _, entry in ipairs(page) do
    if id_of(entry) == id then return leave(entry) end
  end
  if #page == most then return false, where, page[#page] end
  return false, FOLLOWING[where], ''
end

local is_gone, next_where, next_last = look()
if is_gone then
  if ARGV[3] == '' then
    end_if_cancelled(id, group, now)
  else
    note_end('dropped', id, group, now)
    erase(id, group, ARGV[3], now)
  end
  go_on(group, 1, now)
end
return { is_gone and 1 or 0, next_where, next_last }
