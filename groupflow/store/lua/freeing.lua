-- Behind the session rules in every script that settles claims: where a task leaves its slot.

local plain_ended, grouped_ended = 0, 0

local function count_end(group)
  if group == '' then plain_ended = plain_ended + 1 else grouped_ended = grouped_ended + 1 end
end

-- Takes what ended here off the running, and adds what waits again to the queued.
local function write_counts(requeued)
  if plain_ended > 0 then
    call('HINCRBY', K.count, 'running_plain', -plain_ended)
    if requeued then call('HINCRBY', K.count, 'queued_plain', plain_ended) end
  end
  if grouped_ended > 0 then
    call('HINCRBY', K.count, 'running_grouped', -grouped_ended)
    if requeued then call('HINCRBY', K.count, 'queued_grouped', grouped_ended) end
  end
  plain_ended, grouped_ended = 0, 0
end

-- Writes the state of a task: its place, and what has changed.
local function keep_state(entry, group, ...)
  call('HSET', K.task_state .. id_of(entry), 'sequence', sub(entry, 1, 16), 'group', group, ...)
end

-- Places groups whose locks went in this very script. While they ran they stood in neither index, so one without a head
-- is idle already, and those that may be claimed enter `ready` by one command. (With limits, several tasks of a group
-- may run, and it may stand in one; so each is placed by itself.) Returns whether any may be claimed.
local function place_freed(groups, now)
  local ready, last, may_claim = {}, 0, false
  local turn, lane = ORDER == 'fair' and digits(now), K.lane
  for i = 1, #groups do
    local group = groups[i]
    local head = call('LINDEX', lane .. group, -1)
    if head and (is_limiting() or has_state(head) or is_withheld(group)) then
      if place_unlocked(group, now) then may_claim = true end
    elseif head then
      ready[last + 1], ready[last + 2] = turn or sub(head, 1, 16), group
      last = last + 2
    end
  end
  if last > 0 then call('ZADD', K.ready, unpack(ready)) end
  return may_claim or last > 0
end
