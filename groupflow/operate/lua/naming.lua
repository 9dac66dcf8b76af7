-- In front of scripts that answer operators: names with their values, in a flat list. A name whose value is
-- nil is not in it.
local function named(facts)
  local list = {}
  for name, value in pairs(facts) do
    list[#list + 1] = name
    list[#list + 1] = value
  end
  return list
end

local function some(text) return text ~= '' and text or nil end

-- Whether a type is the wanted one, or begins so: `import.*`.
local function is_of_type(name, wanted)
  return name == wanted or (sub(wanted, -1) == '*' and sub(name, 1, #wanted - 1) == sub(wanted, 1, -2))
end

-- What of a tenant (its scope and name) waits for its turn and runs, and its limits: name; groups and plain tasks that
-- wait; running: claims that count for it; concurrency (0 for any; this partition's share), rate (as it was written);
-- free (µs): when it may start something, none at its concurrency; limited_by, 'rate' or 'closed', if that is to come;
-- by_hand: until when (µs) its limits are by hand.
local function figures_of(tenant, now)
  local function waiting(kind) return call('ZCARD', K.waits .. kind .. tenant) end
  local limit = tenants().limit_of(tenant)
  local free, what = tenants().free_at(tenant, now)
  return {
    name = some(sub(tenant, 9)), groups = waiting('g') + waiting('G'), plain = waiting('p') + waiting('P'),
    running = tenants().running(tenant), concurrency = limit.concurrency, rate = some(limit.rate or ''),
    by_hand = limit.till, free = free, limited_by = free and free > now and what or nil,
  }
end

-- What lists show of a task state, by name.
local NOTED = { 'attempt', 'crashes', 'lost_leases', 'stage', 'due', 'errors', 'reason', 'latest', 'unknown', 'pool' }
local function task_state_of(id)
  local task_state, values = {}, call('HMGET', K.task_state .. id, unpack(NOTED))
  for i, name in ipairs(NOTED) do task_state[name] = values[i] or nil end
  if task_state.reason then task_state.reason = reason_of(id) end
  return named(task_state)
end
