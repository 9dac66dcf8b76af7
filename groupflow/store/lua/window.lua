-- Behind the prelude, in `exchange`: a claim may be of several tasks of its group, a run. Those behind the first one wait
-- in their lane, where the lock keeps them for its slot, which goes on with them and says so later; the key `runs` says
-- how far that reaches. A task with a task state is never of a run: it may be delayed, or a quarantined task, or large.

local MOST_BEGUN = 500 -- tasks that one script adds to runs

-- Begins runs, for the claims in the rows behind place `last`, as far as their rules let them (`sizes`, by rule; JSON).
-- `follows(group, entry)` returns what says of a task whether it may follow that one, if any may. The row gets the first
-- one's fence, then entry and envelope of each in turn; each task has a fence of its own.
local function begin_runs(rows, last, sizes, follows)
  local room = MOST_BEGUN
  sizes = cjson.decode(sizes)

  local function run_of(envelope)
    local is_sound, facts = pcall(cjson.decode, string.match(envelope, '^[^\n]*'))
    return is_sound and type(facts) == 'table' and sizes[facts[4]] or 1
  end

  -- The next entries of a lane, as a flat list: entry · envelope.
  local function next_in_lane(group, most, may_follow)
    if most < 1 then return {} end
    local entries, ids, found = call('LRANGE', K.lane .. group, -most, -1), {}, {}
    for i = #entries, 1, -1 do
      if has_state(entries[i]) or not may_follow(entries[i]) then break end
      ids[#ids + 1] = id_of(entries[i])
    end
    local envelopes = #ids > 0 and call('HMGET', K.tasks, unpack(ids)) or {}
    for i = 1, #ids do
      if not envelopes[i] then break end
      found[2 * i - 1], found[2 * i] = entries[#entries - i + 1], envelopes[i]
    end
    return found
  end

  for at = last, #rows - 7, 7 do
    local entry, group = rows[at + 3], rows[at + 4]
    local run = not has_state(entry) and run_of(rows[at + 5]) or 1
    local may_follow = run > 1 and follows(group, entry)
    local found = may_follow and next_in_lane(group, math.min(run - 1, room), may_follow) or {}
    local number = #found / 2
    if number > 0 then
      local fence = call('INCRBY', K.fence, number)
      call('HSET', K.runs, group, digits(fence) .. sub(found[2 * number - 1], 1, 16))
      table.insert(found, 1, digits(fence - number + 1))
      rows[at + 7] = found
      room = room - number
    end
  end
end
