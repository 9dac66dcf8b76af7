-- Behind the session rules: what stands behind a claim in its group. It waits in its lane, under the lock of
-- the task in front of it. What has a life is not told: it may be delayed, or a suspect, or large.

local TOLD = 500 -- that one script tells at most

-- Whether a group has no limit beside being serial, as its head says.
local function is_serial(group, head)
  local limit = limits().of(group, head)
  return limit.concurrency <= 1 and limit.interval == 0
end

-- Whether neither a task's group nor its tenant has a limit: a hop asks for none again.
local function is_unlimited(group, element)
  return not is_limiting() or (is_serial(group, element) and not tenants().of(element))
end

-- Whether a run may go on with a task: one of that tenant's, or nobody's where it is nil, whose starts nothing
-- holds apart. For a tenant's tasks at once, a run is one.
local function may_run_on(group, element, tenant, now)
  if not is_limiting() then return true end
  return is_serial(group, element) and tenants().of(element) == tenant
    and (not tenant or tenants().is_unpaced(tenant, now))
end

-- The next so many elements of a lane behind so many, as a flat list: element · envelope; as far as `may_follow`
-- says so.
local function next_in_lane(group, behind, most, may_follow)
  if most < 1 then return {} end
  local elements, ids, found = call('LRANGE', K.lane .. group, -most - behind, -1 - behind), {}, {}
  for i = #elements, 1, -1 do
    if has_life(elements[i]) or not may_follow(elements[i]) then break end
    ids[#ids + 1] = id_of(elements[i])
  end
  if #ids == 0 then return found end
  local envelopes = call('HMGET', K.tasks, unpack(ids))
  for i = 1, #ids do
    if not envelopes[i] then break end
    found[2 * i - 1], found[2 * i] = elements[#elements - i + 1], envelopes[i]
  end
  return found
end

-- The `run` of the rule that an envelope names, by the caller's table; nil where it names none of it.
local function run_of(envelope, runs)
  local is_sound, facts = pcall(cjson.decode, string.match(envelope, '^[^\n]*'))
  return is_sound and type(facts) == 'table' and runs[facts[4]] or nil
end

-- A group's run reaches as far as what was found behind it, each under a fence of its own: the first one goes in
-- front.
local function reach(group, found)
  local number = #found / 2
  local fence = take_fences(number)
  call('HSET', K.runs, group, digits(fence + number - 1) .. sub(found[2 * number - 1], 1, 16))
  table.insert(found, 1, digits(fence))
end

-- Fills in, for the claims behind `first` in the rows, what stands behind them: a fence, then element and
-- envelope of each in turn. With a fence, the first one's, those are a run: its slot goes on with them, one
-- after another, and says so behind (`proceed`). They stay in the lane, where the lock keeps them for it;
-- `runs` says how far that reaches. Without, they are only told.
local function tell_ahead(rows, first, most, runs, now)
  local room = TOLD
  for at = first, #rows - 7, 7 do
    local element, group = rows[at + 3], rows[at + 4]
    local run = runs and not has_life(element) and run_of(rows[at + 5], runs)
    local tenant = run and is_limiting() and tenants().of(element) or nil
    local function may_follow(each)
      if run then return may_run_on(group, each, tenant, now) end
      return is_unlimited(group, each)
    end
    run = run and may_follow(element) and run
    local wanted = math.min(run and run - 1 or most, room)
    local found = may_follow(element) and next_in_lane(group, 0, wanted, may_follow) or {}
    local number = #found / 2
    if number > 0 then
      if run then reach(group, found) else table.insert(found, 1, '') end
      rows[at + 7] = found
      room = room - number
      if room <= 0 then return end
    end
  end
end
